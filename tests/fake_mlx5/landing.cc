#include "fake_mlx5/landing.h"

#include <sched.h>

#include <algorithm>

namespace moe::test {
namespace {

constexpr std::uint64_t kPieceBytes = 256;      // size of a piece in host memory; in GPU memory a piece is half of the
                                                // data that arrived
constexpr std::uint64_t kLatestNs = 2'000'000;  // for relaxed writes; long enough to show on a busy machine too

}  // namespace

bool Landing::write(std::uint32_t queuePair, const Region& region, std::uint64_t at, const std::uint8_t* from,
                    std::uint32_t bytes, std::uint64_t nowNs) {
  if ((region.access & kAccessRelaxed) != 0 && faults_.random(2) == 0) {
    late_.push_back({queuePair, region, at, {from, from + bytes}, nowNs + faults_.random(kLatestNs)});
    return true;
  }
  return land(region, at, from, bytes);
}

// Pieces start and end at multiples of 8, so that aligned words stay whole.
bool Landing::land(const Region& region, std::uint64_t at, const std::uint8_t* from, std::uint64_t bytes) {
  const std::uint64_t size = region.gpu == nullptr ? kPieceBytes : std::max<std::uint64_t>(bytes / 16 * 8, 8);
  std::vector<std::uint64_t> begins;
  for (std::uint64_t begin = 0; begin < bytes; begin += size - (at + begin) % 8) begins.push_back(begin);
  for (std::size_t i = begins.size(); i > 1; --i) std::swap(begins[i - 1], begins[faults_.random(i)]);
  bool landed = true;
  for (const std::uint64_t begin : begins) {
    const std::uint64_t end = std::min(bytes, begin + size - (at + begin) % 8);
    landed = writeMemory(region, at + begin, from + begin, end - begin) && landed;
    if (begins.size() > 1 && faults_.random(64) == 0) sched_yield();  // lets other threads see it half done
  }
  return landed;
}

template <class Condition>
bool Landing::landIf(Condition due) {
  bool any = false;
  for (auto late = late_.begin(); late != late_.end();) {
    if (!due(*late)) {
      ++late;
      continue;
    }
    land(late->region, late->at, late->data.data(), late->data.size());
    late = late_.erase(late);
    any = true;
  }
  return any;
}

void Landing::finish(std::uint32_t queuePair) {
  landIf([&](const Late& late) { return late.queuePair == queuePair; });
}
void Landing::finishAll() {
  landIf([](const Late&) { return true; });
}
bool Landing::step(std::uint64_t nowNs) {
  return landIf([&](const Late& late) { return late.dueNs <= nowNs; });
}

}  // namespace moe::test
