#include "transport/put_intake.h"

#include <algorithm>

#include "device/policy/host/queue_memory.h"

namespace moe {
namespace {

constexpr std::size_t kLineBytes = 128;

}  // namespace

// The slots follow it in memory.
struct PutIntake::Shared {
  alignas(kLineBytes) std::uint64_t taken;  // the taking thread writes it, posters read it
  alignas(kLineBytes) PutSlot slots[1];
};

PutIntake::PutIntake(Backend& backend, std::uint32_t slots, std::vector<int> lost)
    : backend_(backend), slots_(slots), lost_(std::move(lost)) {
  if (slots == 0 || (slots & (slots - 1)) != 0)
    throw Error(moeInternalError, "the number of slots of a ring is not a power of two");
  shared_ = backend.allocateHostVisible(sizeof(Shared) + slots * sizeof(PutSlot));
  reserved_ = backend.allocatePrivate(kLineBytes, {});
}

PutRing PutIntake::ring() const {
  auto* shared = reinterpret_cast<Shared*>(shared_.get());
  return {shared->slots, reinterpret_cast<std::uint64_t*>(reserved_.get()), &shared->taken, slots_};
}

bool PutIntake::next(Put* put) {
  while (take(HostQueueMemory(), ring(), taken_, put)) {
    if (std::find(lost_.begin(), lost_.end(), put->to) == lost_.end()) return true;
    pop();
  }
  return false;
}

void PutIntake::release() {
  auto* released = &reinterpret_cast<Shared*>(shared_.get())->taken;
  if (HostQueueMemory().load(released) != taken_) HostQueueMemory().publish(released, taken_);
}

std::uint64_t PutIntake::posted() const {
  std::uint64_t count = 0;
  backend_.readWords(&count, ring().reserved, 1);
  return count;
}

std::uint64_t PutIntake::released() const {
  return HostQueueMemory().load(ring().taken);
}

void PutIntake::append(std::uint64_t index, const Put& put) {
  fillPut(HostQueueMemory(), ring(), index, put);
}

}  // namespace moe
