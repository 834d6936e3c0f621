// How the ranks of a TCP transport find each other. Every rank listens, and its card says where. Of two ranks the lower
// one dials. Both prove that they know the key of the listening rank (handshake.h), which is on no card.
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
  // Throws moeInvalidUsage if this is no card of a TCP transport.
  static TcpCard decode(const CardBytes& bytes, int rank);
};

struct TcpConnection {
  int rank;
  Fd socket;
  std::vector<std::uint8_t> unread;  // received from the peer since the handshake
};

// Makes the socket notice, within about `timeout`, that nothing which is sent to the peer arrives any more.
void giveUpAfter(int fd, std::chrono::milliseconds timeout) noexcept;

class TcpMeeting {
 public:
  explicit TcpMeeting(const RemoteSetup& setup);

  TcpCard card() const { return {listener_.addresses}; }
  // Makes a connection to each of setup.peers. Call it once, because it ends listening. Strangers may connect
  // meanwhile. They cost a bounded number of descriptors for a bounded time and are never admitted.
  std::vector<TcpConnection> meet(const RemoteSetup& setup, const std::vector<CardBytes>& cards,
                                  const Deadline& deadline);

 private:
  bootstrap::Listener listener_;
};

}  // namespace moe
