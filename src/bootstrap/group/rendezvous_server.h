// The meeting point of a group. It collects what every rank reports about itself, checks that the reports fit together,
// and gives all ranks the table of listener addresses. It stays connected to every rank until that rank has found its
// place in the tree, so that a death while joining is noticed and named. It has one thread, one poll loop and no state
// outside.
#pragma once

#include <atomic>
#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/deadline.h"
#include "base/error.h"
#include "bootstrap/group/mailbox.h"
#include "bootstrap/net/address.h"
#include "bootstrap/net/lobby.h"
#include "moecomm.h"

namespace moe::bootstrap {

// The content of a rank's Join frame. The frame's header names the rank. Also the key of all connections to the
// rendezvous.
struct JoinRequest {
  std::uint32_t nranks = 0;
  std::uint32_t timeoutMs = 0;     // as configured, for messages
  std::uint32_t leftMs = 0;        // the rank gives up after this
  std::vector<Address> addresses;  // addresses of its listener

  std::vector<std::uint8_t> encode() const;
  static std::optional<JoinRequest> decode(std::span<const std::uint8_t> payload);
};
Key rendezvousKey(const Key& secret);

class RendezvousServer {
 public:
  // `rank`: that of this process; -1: not known.
  RendezvousServer(std::vector<Fd> listeners, const Key& secret, std::chrono::milliseconds timeout, int rank);
  void run();  // returns when the group has met or failed
  // Tells the waiting ranks what run() threw.
  void giveUp(moeResult_t result, const std::string& sentence);

  // Any thread: tells the waiting ranks that this process gives up, and returns when they have been told, or at the
  // deadline. Does nothing if run() has ended.
  void ownerGivesUp(const Error& error, Deadline deadline);
  void end() { over_.store(true); }
  // Any thread: why ranks could not be accepted, if that ended the meeting.
  std::optional<Error> lack() const { return short_.load() ? lack_ : std::nullopt; }

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
  void hearOwner();
  void refuseIfShort();
  std::string self() const;
  void checkPatience();
  bool allDone() const;
  bool finished() const;
  int waitMs() const;

  Lobby lobby_;
  Mailbox owner_;
  int rank_;
  std::chrono::milliseconds shortageMax_;
  std::atomic<bool> told_ = false;  // the ranks that had come by then know that the group has failed
  std::atomic<bool> over_ = false;  // run() has ended
  std::atomic<bool> short_ = false;
  std::optional<Error> lack_;    // does not change once short_ is set
  Deadline lifetime_;            // ends the wait for the first ranks; later the wait for the last ones to be done
  std::vector<Member> members_;  // in the order of arrival
  bool tableSent_ = false;
  std::vector<std::uint8_t> refusal_;  // payload of the Refusal frame; empty: the group has not failed
};

// A server that runs in its own thread, as its process sees it. The thread ends by itself.
class ServedMeeting {
 public:
  ServedMeeting(std::vector<Fd> listeners, const Key& secret, std::chrono::milliseconds timeout, int rank);
  // Tells the ranks that wait there why this process will not come, and waits a moment for that. Returns a better
  // reason if the meeting has one: it could not accept ranks, perhaps not even the one of this process.
  std::optional<Error> giveUp(const Error& error) const noexcept;

 private:
  std::shared_ptr<RendezvousServer> server_;
};

}  // namespace moe::bootstrap
