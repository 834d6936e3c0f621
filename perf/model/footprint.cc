#include "footprint.h"

#include <algorithm>

#include "device/handle_layout.h"
#include "device/window_layout.h"

namespace moe::model {
namespace {

constexpr int kQueueSlotBytes = 64;
constexpr int kRouteWarps = 64;  // of the cuda backend: docs/memory.md

CommShape shapeOf(const Workload& w) {
  CommShape shape;
  shape.nranks = w.ranks;
  shape.rowBytesMax = 2 * w.hidden;
  shape.sideBytesMax = static_cast<int>(rowBytes(RowType::kFp8, w.hidden)) - w.hidden;
  shape.topkMax = w.topk;
  shape.expertsMax = w.expertCount();
  return shape;
}

CommShape llShape(const Workload& w) {
  CommShape shape = shapeOf(w);
  shape.ll = true, shape.llTokensMax = w.tokens;
  return shape;
}

CommShape htShape(const Workload& w, std::int64_t stagingSources) {
  CommShape shape = shapeOf(w);
  shape.ht = true, shape.tokensMax = w.tokens, shape.stagingRows = stagingSources * w.tokens;
  return shape;
}

std::uint64_t handleBytes(const Workload& w) {
  HandleShape shape{ExpertMap{w.expertCount(), w.ranks}};
  shape.topk = w.topk, shape.tokensMax = w.tokens, shape.routeWarpsMax = kRouteWarps;
  HandleView view{};
  return static_cast<std::uint64_t>(layOutHandle(shape, nullptr, &view));
}

}  // namespace

Footprint footprintOf(const Workload& ll, const Workload& ht, int domainRanks) {
  const int inDomain = std::min(domainRanks, ll.ranks), domains = ll.ranks / inDomain;
  const WindowLayout today = WindowPlan::of(llShape(ll));
  Footprint f{};
  f.llWindow = today.totalBytes;
  f.htWindow = WindowPlan::of(htShape(ht, ht.ranks)).totalBytes;
  f.htWindowByDomain = WindowPlan::of(htShape(ht, domains)).totalBytes;
  f.htHandle = handleBytes(ht);
  f.routeCountsArrive = static_cast<std::uint64_t>(ll.ranks - 1) * static_cast<std::uint64_t>(today.countStride) * 4;
  f.llQueuePairs = std::int64_t{kQueuesPerPeer} * (ll.ranks - inDomain);
  f.htQueuePairs = std::int64_t{kQueuesPerPeer} * (domains - 1);
  f.llQueueBytes = static_cast<std::uint64_t>(f.llQueuePairs) * kQueueSlots * kQueueSlotBytes;
  f.htQueueBytes = static_cast<std::uint64_t>(f.htQueuePairs) * kQueueSlots * kQueueSlotBytes;
  return f;
}

}  // namespace moe::model
