// A queue pair of the software adapter: the program's settings, its two queues, and its progress as requester
// (requester.h) and responder (responder.h).
#pragma once

#include <array>
#include <deque>
#include <map>
#include <memory>

#include "fake_mlx5/completion_ring.h"
#include "fake_mlx5/fake_sysfs.h"
#include "fake_mlx5/landing.h"
#include "fake_mlx5/receive_ring.h"
#include "fake_mlx5/send_ring.h"
#include "fake_mlx5/wire.h"

namespace moe::test {

// State that the queue pairs of a process share.
struct Station {
  FaultPlan& faults;
  Violations& violations;
  MemoryRegions regions;
  Landing landing{faults};
  Wire* wire = nullptr;  // null: the adapter executes nothing
  std::uint64_t nowNs = 0;
  std::uint64_t resent = 0;                       // messages sent again
  std::array<std::uint64_t, kDevicesMax> wqes{};  // work elements taken, by device
};

enum class PairState { reset, init, readyToReceive, readyToSend, drained, sendError, error };  // as in verbs

// Set at creation.
struct PairLayout {
  std::uint32_t number, handle, pd, userIndex;
  int context;      // descriptor of the opened device
  unsigned device;  // which one
  std::uint8_t* buffer;
  std::uint32_t* record;
  std::uint32_t sendSlots, receiveCount, receiveShift;
};

// Set when the program connects it.
struct PairPath {
  std::uint32_t access = 0, peer = 0, sendPsn = 0, receivePsn = 0;
  Gid peerGid{};
  unsigned gidIndex = 0;
  std::uint64_t timeoutNs = 0, retryNs = 0;  // 0: for ever; how long peers wait when it is not ready to receive
  unsigned timeoutCode = 0, retries = 0, notReadyRetries = 0, reads = 0, readsOfPeer = 0;
};

// A WQE under way.
struct Message {
  Work work;
  std::uint64_t index;  // index of its first slot
  std::uint32_t psn;
  bool asked = false;      // all packets are sent
  std::uint32_t sent = 0;  // bytes sent
  std::uint32_t got = 0;   // bytes received for a read or atomic
  bool acknowledged = false;
  mlx5::Syndrome failure = mlx5::Syndrome::none;

  bool returns() const { return work.isRead() || work.isAtomic(); }
  bool isDone() const { return acknowledged && (!returns() || got == work.bytes); }
};

struct RequesterState {
  std::deque<Message> window;
  std::uint32_t nextPsn = 0;
  std::uint64_t askedNs = 0, notBeforeNs = 0;  // last progress; no sending before this, as the peer was not ready
  unsigned retries = 0, notReady = 0;
  std::uint64_t recordDueNs = 0;  // when to read the record after a missed doorbell
};

struct ResponderState {
  std::uint32_t expected = 0;  // PSN
  std::uint32_t got = 0;       // bytes of that message received
  bool complained = false;     // already refused for order since the last packet in order
  bool owesAnswer = false;
  bool isStuck = false;
  std::map<std::uint32_t, std::uint64_t> atomicResults;  // the latest results, by PSN
};

struct QueuePair {
  QueuePair(const PairLayout& made, CompletionRing* sendRing, CompletionRing* receiveRing, Violations& violations)
      : layout(made), sendCompletions(sendRing), receiveCompletions(receiveRing) {
    renew(violations);
  }

  // Enters the state after creation. The transition to RESET also calls it.
  void renew(Violations& violations) {
    const std::size_t receiveBytes = std::size_t{layout.receiveCount} << layout.receiveShift;
    send = std::make_unique<SendRing>(layout.buffer + receiveBytes, layout.sendSlots, layout.record, layout.number,
                                      violations);
    receive = std::make_unique<ReceiveRing>(layout.buffer, layout.receiveCount, layout.receiveShift, layout.record,
                                            layout.number, violations);
    state = PairState::reset;
    path = {};
    requester = {};
    responder = {};
  }

  bool maySend() const { return state == PairState::readyToSend; }
  bool mayReceive() const { return state == PairState::readyToReceive || maySend(); }

  PairLayout layout;
  PairState state = PairState::reset;
  PairPath path;
  CompletionRing *sendCompletions, *receiveCompletions;
  std::unique_ptr<SendRing> send;
  std::unique_ptr<ReceiveRing> receive;
  RequesterState requester;
  ResponderState responder;
};

}  // namespace moe::test
