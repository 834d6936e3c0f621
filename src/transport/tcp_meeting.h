// How the ranks of a TCP transport find each other: every rank listens and says where on its card, with a secret of its
// own; of two ranks the lower one dials. Both prove that they know the secret of the card (handshake.h).
#pragma once

#include <string>
#include <vector>

#include "base/deadline.h"
#include "bootstrap/address.h"
#include "bootstrap/siphash.h"
#include "bootstrap/socket.h"
#include "transport/remote.h"

namespace moe {

struct TcpCard {
  bootstrap::Key secret{};
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
  explicit TcpMeeting(const std::string& interfaceName);

  const TcpCard& card() const { return card_; }
  // A connection to each of setup.peers. Stops listening: it is called once. Strangers may come meanwhile; what they do
  // costs time and descriptors within bounds, and they are never let in.
  std::vector<TcpConnection> meet(const RemoteSetup& setup, const std::vector<CardBytes>& cards,
                                  const Deadline& deadline);

 private:
  TcpCard card_;
  bootstrap::Listener listener_;
};

}  // namespace moe
