#include "support/programs/world_shapes.h"

#include <algorithm>

namespace moe::test {
namespace {

constexpr std::int64_t kOutputBytesMax = 256 << 10;

class ShapeDrawer {
 public:
  ShapeDrawer(std::uint64_t seed, Protocol protocol, const ScenarioLimits& limits, Rng& rng)
      : rng_(rng),
        weighing_(mix(seed, 70)),
        budgeting_(mix(seed, 73)),
        naming_(mix(seed, 86)),
        blocks_(isWorldOfBlocks(seed)),
        decodes_(limits.decodes && protocol != Protocol::ht),
        protocol_(protocol),
        limits_(limits) {
    shape_.llSets = 1 + static_cast<int>(seed / 4 % kLlSetsMax);
    waves_ = kHtWaves - 2 * static_cast<int>(seed / 32 % 4);
    shape_.stagingAreas = 1 + static_cast<int>(seed / 16 % kStagingAreasMax);
  }
  WorldShapes draw();

 private:
  HandleShape drawHandle(int nranks);
  int drawDomainSize();
  void limitRowBytes();

  Rng& rng_;
  Rng weighing_;   // separate generators, so that weights at combine leave worlds as they were otherwise ...
  Rng budgeting_;  // ... and budgets ...
  Rng naming_;     // ... and experts that no rank has
  bool blocks_, decodes_;
  int waves_ = kHtWaves;
  Protocol protocol_;
  const ScenarioLimits& limits_;
  CommShape shape_;
  std::vector<HandleShape> handles_;
};

HandleShape ShapeDrawer::drawHandle(int nranks) {
  HandleShape s;
  const bool mostly = !rng_.oneIn(4);
  s.map = {rng_.between(1, nranks * (mostly ? 4 : 8)), nranks};
  s.domains = shape_.domains();
  s.topk = mostly ? rng_.between(1, 8) : rng_.between(1, kTopkMax);
  s.layout = static_cast<Layout>(rng_.below(4));
  if (blocks_) s.layout = Layout::expertMajor;
  s.lowLatency = protocol_ == Protocol::both ? rng_.coin() : protocol_ == Protocol::ll;
  const bool many = !mostly && rng_.oneIn(4);  // more than the 32 of a chunk
  s.tokensMax = rng_.between(1, mostly ? std::min(8, limits_.tokens) : many ? 3 * limits_.tokens : limits_.tokens);
  s.waves = waves_;
  s.alignment = s.layout == Layout::expertMajor && rng_.coin() ? rng_.between(1, 9) : 1;
  s.wideIndex = rng_.coin();
  s.merges = rng_.oneIn(3);
  s.arrivals = hasRowPerExpert(s.layout) && !rng_.oneIn(3);
  s.combineWeights = !weighing_.oneIn(3);
  s.expertCounts = budgeting_.oneIn(3);
  if (budgeting_.oneIn(3)) s.rowsBudget = budgeting_.between(1, static_cast<int>(allTokensMax(s)));
  if (nranks == 1 && naming_.coin()) s.named = s.map.experts + naming_.between(1, 9);  // as a handle of localOnly
  s.routeWarpsMax = rng_.between(1, limits_.warps);
  s.tableBlocks = limits_.warps;
  if (decodes_) {
    s.arrivals = s.expertCounts = false;
    s.rowsBudget = 0;
  }
  return s;
}

int ShapeDrawer::drawDomainSize() {
  if (rng_.coin()) return shape_.nranks;
  for (int size = rng_.between(1, shape_.nranks);; --size) {
    if (shape_.nranks % size == 0) return size;
  }
}

void ShapeDrawer::limitRowBytes() {
  std::int64_t rows = 1;
  for (const HandleShape& s : handles_) rows = std::max(rows, layoutRowsMax(s));
  const int fits = static_cast<int>(std::clamp<std::int64_t>(kOutputBytesMax / rows / 16 * 16, 16, 16384));
  shape_.rowBytesMax = std::min(shape_.rowBytesMax, fits);
  const auto blocks = static_cast<std::int64_t>(2 * kBlockedScaleBytesMax);  // of scales, and of payloads
  shape_.heapBytes =
      shape_.ht ? kOutputAreas * roundUp(rows * (shape_.rowBytesMax + shape_.sideBytesMax) + blocks + 256, 256) : 0;
}

WorldShapes ShapeDrawer::draw() {
  shape_.nranks = rng_.between(limits_.ranksMin, limits_.ranks);
  shape_.domainSize = drawDomainSize();
  if (decodes_ || limits_.oneDomain) shape_.domainSize = shape_.nranks;
  const int handles = rng_.between(1, 3);
  for (int i = 0; i < handles; ++i) handles_.push_back(drawHandle(shape_.nranks));
  shape_.rowBytesMax = 16 * (rng_.oneIn(8) ? rng_.between(1, 1024) : rng_.between(1, 12));
  if (rng_.oneIn(3)) shape_.rowBytesMax = std::max(shape_.rowBytesMax, 16 * rng_.between(9, 100));  // room for casts
  if (blocks_ || decodes_) shape_.rowBytesMax = std::max(shape_.rowBytesMax, 16 * 32);
  shape_.sideBytesMax = rng_.coin() ? 0 : 16 * rng_.between(1, 3);
  for (const HandleShape& s : handles_) {
    shape_.topkMax = std::max(shape_.topkMax, s.topk);
    shape_.expertsMax = std::max(shape_.expertsMax, s.map.experts);
    (s.lowLatency ? shape_.ll : shape_.ht) = true;
    int& tokens = s.lowLatency ? shape_.llTokensMax : shape_.tokensMax;
    tokens = std::max(tokens, s.tokensMax);
  }
  if (rng_.coin()) {  // the communicator may be larger than what the handles use
    shape_.topkMax = std::min(kTopkMax, shape_.topkMax + rng_.below(3));
    shape_.expertsMax += rng_.below(5);
    shape_.tokensMax += shape_.ht ? rng_.below(3) : 0;
    shape_.llTokensMax += shape_.ll ? rng_.below(3) : 0;
  }
  shape_.stagingRows = shape_.ht ? std::int64_t{shape_.nranks} * shape_.tokensMax : 0;
  limitRowBytes();
  return {shape_, handles_};
}

}  // namespace

WorldShapes drawWorldShapes(std::uint64_t seed, Protocol protocol, const ScenarioLimits& limits, Rng& rng) {
  return ShapeDrawer(seed, protocol, limits, rng).draw();
}

}  // namespace moe::test
