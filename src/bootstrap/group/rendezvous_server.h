// The meeting point of a group. It collects what every rank reports about itself, checks that the reports fit together,
// and gives all ranks the table of listener addresses. It stays connected to every rank until that rank has found its
// place in the tree, so that a death while joining is noticed and named. It has one thread, one poll loop and no state
// outside.
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/deadline.h"
#include "bootstrap/net/address.h"
#include "bootstrap/net/lobby.h"
#include "moecomm.h"

namespace moe::bootstrap {

// What a rank sends in its Join frame. The frame's header names the rank. Also the key of all connections to the
// rendezvous.
struct JoinRequest {
  std::uint32_t nranks = 0;
  std::uint32_t timeoutMs = 0;     // as configured, for messages
  std::uint32_t leftMs = 0;        // the rank gives up after this
  std::vector<Address> addresses;  // of its listener

  std::vector<std::uint8_t> encode() const;
  static std::optional<JoinRequest> decode(std::span<const std::uint8_t> payload);
};
Key rendezvousKey(const Key& secret);

class RendezvousServer {
 public:
  RendezvousServer(std::vector<Fd> listeners, const Key& secret, std::chrono::milliseconds timeout);
  void run();  // until the group has met or failed
  // Tells the waiting ranks what run() threw.
  void giveUp(moeResult_t result, const std::string& sentence);

 private:
  struct Member {
    int rank;
    JoinRequest request;
    std::unique_ptr<Link> link;
    Address from;
    Deadline patience;
    bool done = false;     // joined or gone: needs nothing more from us
    bool refused = false;  // came too late to matter to the others
    std::size_t index = 0;
  };
  void admit(std::unique_ptr<Link> guest);
  std::string objection(int rank, const JoinRequest& request, const Address& from) const;
  void listen(Member& member);
  void sendTable();
  void refuseAll(moeResult_t result, const std::string& sentence);
  void refuse(Member& member);
  void checkPatience();
  bool finished() const;
  int waitMs() const;

  Lobby lobby_;
  Deadline lifetime_;            // ends the wait for the first ranks; later the wait for the last ones to be done
  std::vector<Member> members_;  // in the order of arrival
  bool tableSent_ = false;
  std::vector<std::uint8_t> refusal_;  // payload of the Refusal frame; empty: the group has not failed
};

// Runs a server in its own thread. The thread ends by itself.
void startRendezvous(std::vector<Fd> listeners, const Key& secret, std::chrono::milliseconds timeout);

}  // namespace moe::bootstrap
