#include "fake_mlx5/responder.h"

#include <algorithm>
#include <atomic>
#include <cstring>

namespace moe::test {
namespace {

using mlx5::Syndrome;

constexpr std::size_t kResultsKept = 128;  // results of atomics, in case the requests are repeated

// Outcome of a request: done so far, refused, or to be repeated later.
struct Outcome {
  bool refused = false;
  Refusal refusal = Refusal::fatal;
  Syndrome syndrome = Syndrome::none;
};
Outcome refuseFor(Syndrome syndrome) {
  return {true, Refusal::fatal, syndrome};
}
constexpr Outcome kDone{}, kNotReady{true, Refusal::notReady, Syndrome::none};

// Properties of a request's opcode.
struct Kind {
  bool isWrite, isSend, isRead, isAtomic, hasImmediate;

  unsigned access() const { return isWrite ? kAccessRemoteWrite : isRead ? kAccessRemoteRead : kAccessRemoteAtomic; }
};
Kind kindOf(std::uint32_t opcode) {
  return {opcode == 0x08 || opcode == 0x09, opcode == 0x0a || opcode == 0x0b, opcode == 0x10,
          opcode == 0x11 || opcode == 0x12, opcode == 0x09 || opcode == 0x0b};
}

PacketHead answerTo(const QueuePair& pair, PacketKind kind, std::uint32_t psn) {
  PacketHead head{};
  head.kind = kind;
  head.to = pair.path.peer;
  head.from = pair.layout.number;
  head.toGid = pair.path.peerGid;
  head.psn = psn;
  return head;
}

void send(Station& station, const PacketHead& head, const std::uint8_t* data = nullptr) {
  station.wire->send(head, data, station.faults, station.nowNs);
}

void refuse(Station& station, QueuePair& pair, const Outcome& outcome) {
  PacketHead head = answerTo(pair, PacketKind::refuse, pair.responder.expected);
  head.refusal = outcome.refusal;
  head.syndrome = outcome.syndrome;
  head.retryNs = static_cast<std::uint32_t>(std::min<std::uint64_t>(pair.path.retryNs, ~std::uint32_t{0}));
  send(station, head);
}

// ---- Operations

Outcome read(Station& station, QueuePair& pair, const PacketHead& asked, const Region& region) {
  station.landing.finish(pair.layout.number);
  PacketHead head = answerTo(pair, PacketKind::readData, asked.psn);
  std::uint8_t data[kPacketDataBytes];
  for (head.offset = 0; head.offset < asked.totalBytes; head.offset += head.bytes) {
    head.bytes = std::min(kPacketDataBytes, asked.totalBytes - head.offset);
    if (!readMemory(region, asked.address + head.offset, data, head.bytes)) return refuseFor(Syndrome::remoteOperation);
    send(station, head, data);
  }
  return kDone;
}

// Returns the previous value. On a GPU the update is not atomic with accesses of the GPU, as with real adapters.
std::uint64_t update(const PacketHead& asked, const Region& region) {
  std::uint64_t before = 0;
  if (region.gpu == nullptr) {
    std::atomic_ref word(*reinterpret_cast<std::uint64_t*>(region.placeOf(asked.address)));
    if (asked.opcode == 0x12) return word.fetch_add(asked.operand[0]);
    before = asked.operand[1];
    word.compare_exchange_strong(before, asked.operand[0]);
    return before;
  }
  readMemory(region, asked.address, &before, sizeof(before));
  const std::uint64_t after = asked.opcode == 0x12         ? before + asked.operand[0]
                              : before == asked.operand[1] ? asked.operand[0]
                                                           : before;
  writeMemory(region, asked.address, &after, sizeof(after));
  return before;
}

void sendAtomicResult(Station& station, QueuePair& pair, std::uint32_t psn) {
  PacketHead head = answerTo(pair, PacketKind::atomicResult, psn);
  head.operand[0] = pair.responder.atomicResults[psn];
  send(station, head);
}

Outcome doAtomic(Station& station, QueuePair& pair, const PacketHead& asked, const Region& region) {
  if (asked.address % 8 != 0) return refuseFor(Syndrome::remoteInvalidRequest);
  station.landing.finish(pair.layout.number);
  auto& results = pair.responder.atomicResults;
  results[asked.psn] = update(asked, region);
  results.erase(psnAfter(asked.psn, kPsnMask + 1 - kResultsKept));
  sendAtomicResult(station, pair, asked.psn);
  return kDone;
}

void completeReceive(Station& station, QueuePair& pair, const PacketHead& asked, Syndrome syndrome) {
  const Kind kind = kindOf(asked.opcode);
  station.landing.finish(pair.layout.number);
  mlx5::Completion completion{};
  completion.opcode = static_cast<mlx5::CqeOpcode>(kind.isWrite ? 1 : kind.hasImmediate ? 3 : 2);
  if (syndrome != Syndrome::none) completion.opcode = mlx5::CqeOpcode::responderError;
  completion.counter = pair.receive->take();
  completion.queuePair = pair.layout.number;
  completion.userIndex = pair.layout.userIndex;
  completion.bytes = asked.totalBytes;
  completion.immediate = asked.immediate;
  completion.syndrome = syndrome;
  completion.vendorSyndrome = syndrome == Syndrome::none ? 0 : 0x99;
  pair.receiveCompletions->complete(completion, station.faults, station.nowNs);
}

// Puts a piece of a send where the receive element says.
Outcome scatter(Station& station, QueuePair& pair, const Packet& packet) {
  const PacketHead& asked = packet.head;
  for (std::uint32_t done = 0; done < asked.bytes;) {
    const std::uint32_t left = asked.bytes - done;
    const ReceiveRing::Place place = pair.receive->find(station.regions, pair.layout.pd, asked.offset + done, left);
    if (place.region == nullptr) {
      const bool tooLong = place.bytes == 0;
      completeReceive(station, pair, asked, tooLong ? Syndrome::localLength : Syndrome::localProtection);
      return refuseFor(tooLong ? Syndrome::remoteInvalidRequest : Syndrome::remoteOperation);
    }
    station.landing.write(pair.layout.number, *place.region, place.address, packet.data + done, place.bytes,
                          station.nowNs);
    done += place.bytes;
  }
  return kDone;
}

// ---- Requests

Outcome checkRequest(Station& station, const QueuePair& pair, const PacketHead& asked, const Region** region) {
  const Kind kind = kindOf(asked.opcode);
  if (kind.isSend) return kDone;
  if ((pair.path.access & kind.access()) == 0) return refuseFor(Syndrome::remoteInvalidRequest);
  if ((kind.isRead || kind.isAtomic) && asked.readsMax > pair.path.readsOfPeer) {
    station.violations.note(pair.layout.number, 0, "the peer may read more at once than this queue pair was made for");
  }
  if (asked.totalBytes == 0) return kDone;
  *region = station.regions.find(asked.rkey, pair.layout.pd, asked.address, asked.totalBytes, kind.access());
  return *region == nullptr ? refuseFor(Syndrome::remoteAccess) : kDone;
}

Outcome carryOut(Station& station, QueuePair& pair, const Packet& packet) {
  const PacketHead& asked = packet.head;
  const Kind kind = kindOf(asked.opcode);
  const bool isLast = kind.isRead || kind.isAtomic || asked.offset + asked.bytes == asked.totalBytes;
  const bool takesReceive = kind.isSend || (kind.hasImmediate && isLast);
  if (isLast && station.faults.strikes(Fault::nak)) return refuseFor(Syndrome::remoteAccess);
  if (takesReceive && (station.faults.strikes(Fault::rnr) || !pair.receive->hasNext())) return kNotReady;
  const Region* region = nullptr;
  Outcome outcome = checkRequest(station, pair, asked, &region);
  if (outcome.refused) return outcome;
  if (kind.isRead) return read(station, pair, asked, *region);
  if (kind.isAtomic) return doAtomic(station, pair, asked, *region);
  if (kind.isSend) outcome = scatter(station, pair, packet);
  if (kind.isWrite && asked.bytes != 0) {
    const std::uint64_t to = asked.address + asked.offset;
    station.landing.write(pair.layout.number, *region, to, packet.data, asked.bytes, station.nowNs);
  }
  if (!outcome.refused && takesReceive && isLast) completeReceive(station, pair, asked, Syndrome::none);
  return outcome;
}

// Answers a repeated request again. Only reads are executed again.
void answerAgain(Station& station, QueuePair& pair, const PacketHead& asked) {
  const Kind kind = kindOf(asked.opcode);
  const Region* region = nullptr;
  if (kind.isAtomic && pair.responder.atomicResults.contains(asked.psn)) {
    sendAtomicResult(station, pair, asked.psn);
  } else if (kind.isRead && !checkRequest(station, pair, asked, &region).refused && region != nullptr) {
    read(station, pair, asked, *region);
  }
  pair.responder.owesAnswer = true;
}

void complainOnce(Station& station, QueuePair& pair) {
  if (!pair.responder.complained) refuse(station, pair, {true, Refusal::outOfOrder, Syndrome::none});
  pair.responder.complained = true;
}

void takeNext(Station& station, QueuePair& pair, const Packet& packet) {
  const PacketHead& asked = packet.head;
  ResponderState& state = pair.responder;
  if (asked.offset < state.got) return;  // a repeat, and not the end of the message
  if (asked.offset > state.got) return complainOnce(station, pair);
  const Outcome outcome = carryOut(station, pair, packet);
  if (outcome.refused) {
    refuse(station, pair, outcome);
    if (outcome.refusal == Refusal::fatal) pair.state = PairState::error;
    return;
  }
  state.complained = false;
  state.got += asked.bytes;
  const Kind kind = kindOf(asked.opcode);
  if (!kind.isRead && !kind.isAtomic && state.got < asked.totalBytes) return;
  state.expected = psnAfter(state.expected, 1);
  state.got = 0;
  state.owesAnswer = state.owesAnswer || kind.isWrite || kind.isSend;
}

}  // namespace

void takeRequest(Station& station, QueuePair& pair, const Packet& packet) {
  const PacketHead& asked = packet.head;
  ResponderState& state = pair.responder;
  if (!pair.mayReceive() || asked.from != pair.path.peer || state.isStuck) return;
  const std::int32_t distance = psnDistance(asked.psn, state.expected);
  const bool isNew = distance == 0 && asked.offset == 0 && state.got == 0;
  if (isNew && station.faults.strikes(Fault::stuck)) state.isStuck = true;
  if (state.isStuck) return;
  if (distance < 0) return answerAgain(station, pair, asked);
  if (distance > 0) return complainOnce(station, pair);
  takeNext(station, pair, packet);
}

bool stepResponder(Station& station, QueuePair& pair) {
  if (!pair.responder.owesAnswer || !pair.mayReceive()) return false;
  pair.responder.owesAnswer = false;
  send(station, answerTo(pair, PacketKind::acknowledge, psnAfter(pair.responder.expected, kPsnMask)));
  return true;
}

bool flushReceives(Station& station, QueuePair& pair) {
  bool any = false;
  for (; pair.layout.receiveCount != 0 && pair.receive->hasNext(); any = true) {
    PacketHead none{};
    completeReceive(station, pair, none, Syndrome::flushed);
  }
  return any;
}

}  // namespace moe::test
