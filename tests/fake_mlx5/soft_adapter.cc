#include "fake_mlx5/soft_adapter.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cstring>

#include "device/policy/host/queue_memory.h"
#include "fake_mlx5/cqe_image.h"

namespace moe::test {
namespace {

using mlx5::Syndrome;

template <class T>
T* at(std::uint64_t address) {
  return reinterpret_cast<T*>(static_cast<std::uintptr_t>(address));
}

std::uint16_t low16(std::uint64_t index) {
  return static_cast<std::uint16_t>(index);
}

// Flags are words that a reader polls. Nobody reads the other data before its flag.
void deliver(std::uint64_t to, const void* from, std::uint32_t bytes) {
  if (bytes == 8 && to % 8 == 0) {
    std::uint64_t word;
    std::memcpy(&word, from, 8);
    std::atomic_ref(*at<std::uint64_t>(to)).store(word, std::memory_order_release);
  } else {
    std::memcpy(at<void>(to), from, bytes);
  }
}

// Returns the previous value.
std::uint64_t updateAtomically(const Work& work) {
  std::atomic_ref word(*at<std::uint64_t>(work.remoteAddress));
  if (work.opcode == 0x12) return word.fetch_add(work.operand[0]);
  std::uint64_t before = work.operand[1];
  word.compare_exchange_strong(before, work.operand[0]);
  return before;
}

unsigned remoteAccessFor(const Work& work) {
  return work.isAtomic() ? kRemoteAtomic : work.isRead() ? kRemoteRead : kRemoteWrite;
}

}  // namespace

std::uint32_t SoftAdapter::registerMemory(const void* memory, std::size_t bytes, unsigned access) {
  const auto key = static_cast<std::uint32_t>((regions_.size() + 1) << 8 | 0x42);
  regions_[key] = {reinterpret_cast<std::uintptr_t>(memory), bytes, access};
  return key;
}

void SoftAdapter::addQueuePair(const mlx5::SendQueue& send, const mlx5::CompletionQueue& completions) {
  const std::uint64_t begin = *send.completed;
  std::vector<std::uint8_t> told(std::size_t{send.slotCount} * mlx5::kSlotBytes);
  pairs_[send.queuePair] = {send, completions, begin, begin, 0, std::move(told), completions.consumed, 0, 0, false};
}

void SoftAdapter::connect(std::uint32_t queuePair, std::uint32_t other) {
  pairs_.at(queuePair).peer = other;
  pairs_.at(other).peer = queuePair;
}

void SoftAdapter::step() {
  ++steps_;
  for (auto& [number, pair] : pairs_) {
    takeDoorbell(pair);
    if (pair.executed != pair.end && steps_ >= pair.dueStep) executeNext(pair);
  }
}

// ---- Doorbells

void SoftAdapter::takeDoorbell(QueuePair& pair) {
  const std::uint64_t rung = mlx5::bigEndian(std::atomic_ref(*pair.send.doorbell).exchange(0));
  if (rung == 0) return;
  if (ignored_ != 0) {
    --ignored_;
    return;
  }
  if ((rung >> 8 & 0xffffff) != pair.send.queuePair) note(pair, pair.end, "the doorbell names another queue pair");
  acceptRecord(pair, static_cast<std::uint16_t>(rung >> 40));
}

// The record counts. The doorbell's index may be that of the last WQE or the next one.
void SoftAdapter::acceptRecord(QueuePair& pair, std::uint16_t doorbellIndex) {
  const std::uint32_t* word = pair.send.record + 1;
  const auto record = static_cast<std::uint16_t>(mlx5::bigEndian(HostQueueMemory().load(word)));
  if (static_cast<std::int16_t>(record - doorbellIndex) < 0) {
    note(pair, pair.end, "the doorbell was rung before its record was written");
  }
  const auto more = static_cast<std::uint16_t>(record - low16(pair.end));
  const std::uint64_t end = pair.end + more;
  if (end - pair.executed > pair.send.slotCount) {
    return note(pair, end, "more is posted than the queue holds, or the record went back");
  }
  for (; pair.end != end; ++pair.end) {
    std::memcpy(pair.told.data() + pair.end % pair.send.slotCount * mlx5::kSlotBytes,
                mlx5::segmentAt(pair.send, pair.end, 0), mlx5::kSlotBytes);
  }
  pair.dueStep = steps_ + delaySteps_;
}

// ---- WQEs

void SoftAdapter::readSlots(const QueuePair& pair, std::uint64_t index, std::uint8_t* image) const {
  for (std::uint64_t slot = 0; slot < kWqeBytesMax / mlx5::kSlotBytes; ++slot) {
    const std::size_t from = (index + slot) % pair.send.slotCount * mlx5::kSlotBytes;
    std::memcpy(image + slot * mlx5::kSlotBytes, pair.told.data() + from, mlx5::kSlotBytes);
  }
}

// Poisons the slots, so that a poster that rings before it writes the WQE posts poison. The length stays, because the
// owner of the completions reads it.
void SoftAdapter::poison(const QueuePair& pair, std::uint64_t index, std::uint64_t slots) {
  for (std::uint64_t slot = 0; slot < slots; ++slot) {
    Quad* segment = mlx5::segmentAt(pair.send, index + slot, 0);
    segment[0] = {kPoison, slot == 0 ? segment[0].y : kPoison, kPoison, kPoison};
    for (int i = 1; i < mlx5::kSlotSegments; ++i) segment[i] = {kPoison, kPoison, kPoison, kPoison};
  }
}

void SoftAdapter::executeNext(QueuePair& pair) {
  const std::uint64_t index = pair.executed;
  std::uint8_t image[kWqeBytesMax];
  readSlots(pair, index, image);
  const ReadWqe read = readWqe(image, pair.send.queuePair, low16(index));
  const Work& work = read.work;
  for (std::uint64_t slot = index; slot < index + work.slots; ++slot) {
    if (std::memcmp(mlx5::segmentAt(pair.send, slot, 0), image + (slot - index) * 64, mlx5::kSlotBytes) != 0) {
      note(pair, slot, "the WQE changed after the doorbell");
    }
  }
  if (index + work.slots > pair.end) note(pair, index, "the WQE is longer than what was posted");
  if (!read.complaint.empty()) note(pair, index, read.complaint);

  mlx5::Completion done{};
  done.wqeOpcode = static_cast<std::uint8_t>(work.opcode);
  done.counter = low16(index);
  done.bytes = work.bytes;
  done.syndrome = pair.failed               ? Syndrome::flushed
                  : !read.complaint.empty() ? Syndrome::localOperation
                                            : carryOut(pair, work);
  done.opcode = done.syndrome == Syndrome::none ? mlx5::CqeOpcode::requester : mlx5::CqeOpcode::requesterError;
  pair.failed = done.failed();
  poison(pair, index, work.slots);
  pair.executed = std::min(index + work.slots, pair.end);
  if (work.signalled || done.failed()) complete(pair, done);
}

Syndrome SoftAdapter::carryOut(QueuePair& pair, const Work& work) {
  if (work.isSend()) return Syndrome::localOperation;  // not supported between these queue pairs
  const bool returns = work.isAtomic() || work.isRead();
  if (work.inlined.empty() && !covers(work.lkey, work.localAddress, work.bytes, returns ? kLocalWrite : 0)) {
    return Syndrome::localProtection;
  }
  if (!covers(work.rkey, work.remoteAddress, work.bytes, remoteAccessFor(work))) return Syndrome::remoteAccess;
  if (work.isAtomic()) {
    const std::uint64_t before = updateAtomically(work);
    deliver(work.localAddress, &before, 8);
  } else if (work.isRead()) {
    deliver(work.localAddress, at<void>(work.remoteAddress), work.bytes);
  } else {
    deliver(work.remoteAddress, work.inlined.empty() ? at<void>(work.localAddress) : work.inlined.data(), work.bytes);
  }
  return work.opcode == 0x09 ? receive(pairs_.at(pair.peer), work) : Syndrome::none;
}

// The peer's side of a write with immediate: consumes one of its receive WQEs.
Syndrome SoftAdapter::receive(QueuePair& peer, const Work& work) {
  const std::uint32_t* word = peer.send.record;
  const auto posted = static_cast<std::uint16_t>(mlx5::bigEndian(HostQueueMemory().load(word)));
  if (posted == peer.received) return Syndrome::receiverNotReady;
  mlx5::Completion arrived{};
  arrived.opcode = mlx5::CqeOpcode::writeImmReceived;
  arrived.counter = peer.received++;
  arrived.bytes = work.bytes;
  arrived.immediate = work.immediate;
  complete(peer, arrived);
  return Syndrome::none;
}

bool SoftAdapter::covers(std::uint32_t key, std::uint64_t address, std::uint64_t bytes, unsigned access) const {
  const auto found = regions_.find(key);
  if (found == regions_.end()) return false;
  const Region& region = found->second;
  const std::uint64_t offset = address - region.address;  // wraps to a huge value if the address is before the region
  return offset <= region.bytes && bytes <= region.bytes - offset && (region.access & access) == access;
}

void SoftAdapter::complete(QueuePair& pair, mlx5::Completion completion) {
  const std::uint32_t consumed = mlx5::bigEndian(HostQueueMemory().load(pair.completions.record));
  if (((pair.produced - consumed) & 0xffffff) >= pair.completions.count) {
    note(pair, pair.executed, "the completion queue overran");
  }
  completion.queuePair = pair.send.queuePair;
  completion.vendorSyndrome = completion.failed() ? 0x99 : 0;
  writeCqe(const_cast<mlx5::Cqe*>(pair.completions.entries), pair.completions.count, pair.produced++, completion);
}

void SoftAdapter::note(const QueuePair& pair, std::uint64_t index, const std::string& what) {
  violations_.push_back(fmt::format("queue pair {:x}, slot {}: {}", pair.send.queuePair, index, what));
}

}  // namespace moe::test
