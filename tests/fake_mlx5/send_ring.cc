#include "fake_mlx5/send_ring.h"

#include <algorithm>
#include <atomic>
#include <cstring>

#include "device/queue/mlx5/byte_order.h"

namespace moe::test {

SendRing::SendRing(std::uint8_t* slots, std::uint32_t slotCount, std::uint32_t* record, std::uint32_t queuePair,
                   Violations& violations)
    : slots_(slots),
      slotCount_(slotCount),
      record_(record),
      queuePair_(queuePair),
      violations_(violations),
      told_(std::size_t{slotCount} * 64) {}

// The index may be that of the last WQE or the next one.
void SendRing::takeDoorbell(std::uint16_t index) {
  acceptRecord();
  if (static_cast<std::int16_t>(static_cast<std::uint16_t>(end_) - index) < 0) {
    note(end_, "the doorbell was rung before its record was written");
  }
}

bool SendRing::acceptRecord() {
  const std::uint32_t word = std::atomic_ref(record_[1]).load(std::memory_order_acquire);
  if ((mlx5::bigEndian(word) >> 16) != 0) note(end_, "the doorbell record has more than 16 bits");
  const auto record = static_cast<std::uint16_t>(mlx5::bigEndian(word));
  const std::uint64_t end = end_ + static_cast<std::uint16_t>(record - static_cast<std::uint16_t>(end_));
  if (end == end_) return false;
  if (end - released_ > slotCount_) {
    note(end, "more is posted than the queue holds, or the record went back");
    return false;
  }
  for (; end_ != end; ++end_) std::memcpy(copyOf(end_), slotAt(end_), 64);
  return true;
}

SendRing::Next SendRing::readNext() {
  std::uint8_t image[kWqeBytesMax];
  for (std::uint64_t slot = 0; slot < kWqeBytesMax / 64; ++slot) {
    std::memcpy(image + slot * 64, copyOf(next_ + slot), 64);
  }
  Next next = {next_, readWqe(image, queuePair_, static_cast<std::uint16_t>(next_))};
  if (next_ + next.wqe.work.slots > end_) {
    if (next.wqe.complaint.empty()) next.wqe.complaint = "the WQE is longer than what was posted";
    next.wqe.work.slots = end_ - next_;
  }
  if (!next.wqe.complaint.empty()) note(next_, next.wqe.complaint.c_str());
  next_ += next.wqe.work.slots;
  return next;
}

// Poisons the slots, so that a poster that rings before it writes the WQE posts poison. The first eight bytes stay,
// because the owner of the completions reads the length there. libmlx5 may also ring with them only now, since the
// record announced the WQE before its doorbell. They do not count as a WQE in the next round, because their index is
// old.
void SendRing::finish(std::uint64_t index, std::uint64_t slots) {
  for (std::uint64_t slot = index; slot < index + slots; ++slot) {
    if (std::memcmp(slotAt(slot), copyOf(slot), 64) != 0) note(slot, "the WQE changed after the doorbell");
    const std::size_t keep = slot == index ? 8 : 0;
    std::memset(slotAt(slot) + keep, kPoison & 0xff, 64 - keep);
  }
}

}  // namespace moe::test
