#include "fake_mlx5/requester.h"

#include <algorithm>
#include <cstring>

namespace moe::test {
namespace {

using mlx5::Syndrome;

constexpr std::size_t kWindow = 64;  // messages under way
constexpr unsigned kForever = 7;     // the retry count that never ends

// Ends the queue pair with an error. The program may give up or go on; what it posted later is not executed.
void fail(Station& station, QueuePair& pair, Syndrome syndrome);

// ---- WQEs

void complete(Station& station, QueuePair& pair, const Message& message, Syndrome syndrome) {
  pair.send->finish(message.index, message.work.slots);
  if (syndrome == Syndrome::none && !message.work.signalled) return;
  mlx5::Completion completion{};
  const bool good = syndrome == Syndrome::none;
  completion.opcode = good ? mlx5::CqeOpcode::requester : mlx5::CqeOpcode::requesterError;
  completion.wqeOpcode = static_cast<std::uint8_t>(message.work.opcode);
  completion.counter = static_cast<std::uint16_t>(message.index);
  completion.queuePair = pair.layout.number;
  completion.userIndex = pair.layout.userIndex;
  completion.bytes = message.work.bytes;
  completion.syndrome = syndrome;
  completion.vendorSyndrome = good ? 0 : 0x99;
  pair.send->release(message.index + message.work.slots);
  pair.sendCompletions->complete(completion, station.faults, station.nowNs);
}

// Finds errors that a real adapter also reports before it sends anything.
Syndrome checkLocally(Station& station, const QueuePair& pair, const Message& message) {
  const Work& work = message.work;
  if (station.faults.strikes(Fault::error)) return station.faults.errorSyndrome();
  if (!work.inlined.empty() || work.bytes == 0) return Syndrome::none;
  const unsigned access = message.returns() ? kAccessLocalWrite : 0;
  const bool covered =
      station.regions.find(work.lkey, pair.layout.pd, work.localAddress, work.bytes, access) != nullptr;
  return covered ? Syndrome::none : Syndrome::localProtection;
}

bool readNextMessage(Station& station, QueuePair& pair) {
  RequesterState& state = pair.requester;
  const bool blocked = !state.window.empty() && state.window.back().failure != Syndrome::none;
  if (!pair.send->hasNext() || state.window.size() >= kWindow || blocked) return false;
  SendRing::Next next = pair.send->readNext();
  ++station.wqes[pair.layout.device];
  Message& message = state.window.emplace_back();
  message.work = std::move(next.wqe.work);
  message.index = next.index;
  message.psn = state.nextPsn;
  message.failure = next.wqe.complaint.empty() ? checkLocally(station, pair, message) : Syndrome::localOperation;
  state.nextPsn = psnAfter(state.nextPsn, 1);
  return true;
}

// ---- Asking

bool sendPiece(Station& station, QueuePair& pair, Message& message) {
  const Work& work = message.work;
  Packet packet{};
  PacketHead& head = packet.head;
  head.kind = PacketKind::request;
  head.to = pair.path.peer;
  head.from = pair.layout.number;
  head.toGid = pair.path.peerGid;
  head.psn = message.psn;
  head.opcode = static_cast<std::uint32_t>(work.opcode);
  head.rkey = work.rkey;
  head.immediate = work.immediate;
  head.address = work.remoteAddress;
  head.operand[0] = work.operand[0];
  head.operand[1] = work.operand[1];
  head.totalBytes = work.bytes;
  head.offset = message.sent;
  head.readsMax = pair.path.reads;
  if (!message.returns()) head.bytes = std::min(kPacketDataBytes, work.bytes - message.sent);
  if (!work.inlined.empty()) {
    std::memcpy(packet.data, work.inlined.data() + message.sent, head.bytes);
  } else if (head.bytes != 0) {
    // Looked up for each piece, because the program may deregister its memory too early.
    const std::uint64_t from = work.localAddress + message.sent;
    const Region* region = station.regions.find(work.lkey, pair.layout.pd, from, head.bytes, 0);
    if (region == nullptr || !readMemory(*region, from, packet.data, head.bytes)) {
      message.failure = Syndrome::localProtection;
      return false;
    }
  }
  message.sent += head.bytes;
  message.asked = message.returns() || message.sent == work.bytes;
  station.wire->send(head, packet.data, station.faults, station.nowNs);
  return true;
}

bool ask(Station& station, QueuePair& pair) {
  RequesterState& state = pair.requester;
  if (station.nowNs < state.notBeforeNs) return false;
  bool any = false;
  unsigned reads = 0;
  for (Message& message : state.window) {
    if (message.failure != Syndrome::none) break;
    const bool mustWait = (message.work.fenced && reads != 0) || (message.returns() && reads >= pair.path.reads);
    if (!message.asked && mustWait) break;
    while (!message.asked && station.wire->hasRoom(pair.layout.number)) {
      if (!sendPiece(station, pair, message)) return true;
      if (!any) state.askedNs = std::max(state.askedNs, station.nowNs);
      any = true;
    }
    if (!message.asked) break;
    reads += message.returns() && !message.isDone();
  }
  return any;
}

// Sends again from the oldest unfinished message on.
void askAgain(Station& station, QueuePair& pair) {
  for (Message& message : pair.requester.window) {
    if (message.isDone()) continue;
    station.resent += message.asked;
    message.asked = false;
    message.sent = 0;
  }
  pair.requester.askedNs = station.nowNs;
}

// ---- Ends

bool completeDone(Station& station, QueuePair& pair) {
  std::deque<Message>& window = pair.requester.window;
  bool any = false;
  for (; !window.empty() && pair.maySend(); any = true) {
    const Message& front = window.front();
    if (front.failure != Syndrome::none) {
      fail(station, pair, front.failure);
    } else if (front.isDone()) {
      complete(station, pair, front, Syndrome::none);
      window.pop_front();
    } else {
      break;
    }
  }
  return any;
}

void fail(Station& station, QueuePair& pair, Syndrome syndrome) {
  complete(station, pair, pair.requester.window.front(), syndrome);
  pair.requester.window.pop_front();
  pair.state = PairState::error;
}

bool flush(Station& station, QueuePair& pair) {
  std::deque<Message>& window = pair.requester.window;
  bool any = false;
  for (; !window.empty(); any = true) {
    complete(station, pair, window.front(), Syndrome::flushed);
    window.pop_front();
  }
  for (; pair.send->hasNext(); any = true) {
    SendRing::Next next = pair.send->readNext();
    Message message{};
    message.work = std::move(next.wqe.work);
    message.index = next.index;
    complete(station, pair, message, Syndrome::flushed);
  }
  return any;
}

bool checkTime(Station& station, QueuePair& pair) {
  RequesterState& state = pair.requester;
  const bool waits = !state.window.empty() && state.window.front().asked;
  if (!waits || pair.path.timeoutNs == 0 || station.nowNs < state.askedNs + pair.path.timeoutNs) return false;
  if (station.nowNs < state.notBeforeNs) return false;
  if (state.retries++ >= pair.path.retries) {
    fail(station, pair, Syndrome::retriesExceeded);
  } else if (station.wire->isIdle(pair.layout.number)) {
    askAgain(station, pair);
  } else {
    state.askedNs = station.nowNs;  // the peer's adapter does not even accept packets
  }
  return true;
}

// ---- Answers

// Ignores acknowledgements of messages that were never sent. Then the two ends disagree about the first PSN.
void acknowledgeUpTo(Station& station, QueuePair& pair, std::uint32_t psn) {
  if (psnDistance(psn, pair.requester.nextPsn) >= 0) return;
  bool progress = false;
  for (Message& message : pair.requester.window) {
    if (psnDistance(message.psn, psn) > 0) break;
    progress = progress || !message.acknowledged;
    message.acknowledged = true;
    if (!message.returns()) message.asked = true;  // it may have been due to be sent again
  }
  if (progress) {
    pair.requester.retries = pair.requester.notReady = 0;
    pair.requester.askedNs = station.nowNs;
  }
}

Message* findMessage(QueuePair& pair, std::uint32_t psn) {
  for (Message& message : pair.requester.window) {
    if (message.psn == psn) return &message;
  }
  return nullptr;
}

void storeResult(Station& station, QueuePair& pair, Message& message, const void* data, std::uint32_t bytes) {
  const Work& work = message.work;
  const std::uint64_t to = work.localAddress + message.got;
  const Region* region = station.regions.find(work.lkey, pair.layout.pd, to, bytes, kAccessLocalWrite);
  if (region == nullptr || !writeMemory(*region, to, data, bytes)) message.failure = Syndrome::localAccess;
  message.got += bytes;
  pair.requester.askedNs = station.nowNs;
  if (message.got == work.bytes) acknowledgeUpTo(station, pair, message.psn);
}

void takeRefusal(Station& station, QueuePair& pair, const PacketHead& head) {
  RequesterState& state = pair.requester;
  acknowledgeUpTo(station, pair, psnAfter(head.psn, kPsnMask));
  Message* message = findMessage(pair, head.psn);
  if (message == nullptr || (head.refusal != Refusal::outOfOrder && message->acknowledged)) return;
  if (head.refusal == Refusal::fatal) {
    message->failure = head.syndrome;
  } else if (head.refusal == Refusal::outOfOrder) {
    askAgain(station, pair);
  } else if (pair.path.notReadyRetries != kForever && state.notReady++ >= pair.path.notReadyRetries) {
    message->failure = Syndrome::receiverNotReady;
  } else {
    state.notBeforeNs = station.nowNs + head.retryNs;
    askAgain(station, pair);
  }
}

}  // namespace

bool stepRequester(Station& station, QueuePair& pair) {
  if (pair.state == PairState::error) return flush(station, pair);
  if (!pair.maySend()) return false;
  bool any = false;
  while (readNextMessage(station, pair)) any = true;
  any = ask(station, pair) || any;
  any = completeDone(station, pair) || any;
  return (pair.maySend() && checkTime(station, pair)) || any;
}

void takeAnswer(Station& station, QueuePair& pair, const Packet& packet) {
  const PacketHead& head = packet.head;
  if (!pair.maySend() || head.from != pair.path.peer) return;
  if (head.kind == PacketKind::acknowledge) return acknowledgeUpTo(station, pair, head.psn);
  if (head.kind == PacketKind::refuse) return takeRefusal(station, pair, head);
  Message* message = findMessage(pair, head.psn);
  if (message == nullptr || !message->asked) return;
  if (head.kind == PacketKind::atomicResult && message->work.isAtomic() && message->got == 0) {
    storeResult(station, pair, *message, head.operand, 8);
  } else if (head.kind == PacketKind::readData && message->work.isRead() && head.offset == message->got) {
    storeResult(station, pair, *message, packet.data, head.bytes);
  }
}

}  // namespace moe::test
