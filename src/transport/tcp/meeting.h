// How the ranks of a TCP transport find each other: every rank listens and says where on its card; of two ranks the
// lower one dials. Both prove that they know the key of the rank that listens (handshake.h), which is on no card.
#pragma once

#include <string>
#include <vector>

#include "base/deadline.h"
#include "bootstrap/net/address.h"
#include "bootstrap/net/socket.h"
#include "transport/remote.h"

namespace moe {

struct TcpCard {
  std::vector<bootstrap::Address> addresses;

  CardBytes encode() const;
  // Throws moeInvalidUsage if it is no card of a TCP transport.
  static TcpCard decode(const CardBytes& bytes, int rank);
};

struct TcpConnection {
  int rank;
  Fd socket;
  std::vector<std::uint8_t> unread;  // of what the peer has sent since
};

class TcpMeeting {
 public:
  explicit TcpMeeting(const RemoteSetup& setup);

  TcpCard card() const { return {listener_.addresses}; }
  // A connection to each of setup.peers. Stops listening: it is called once. Strangers may come meanwhile; what they do
  // costs time and descriptors within bounds, and they are never let in.
  std::vector<TcpConnection> meet(const RemoteSetup& setup, const std::vector<CardBytes>& cards,
                                  const Deadline& deadline);

 private:
  bootstrap::Listener listener_;
};

}  // namespace moe
