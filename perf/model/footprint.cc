#include "perf/model/footprint.h"

#include <algorithm>

#include "device/view/handle_layout.h"
#include "device/view/window_layout.h"
#include "topology/rdma_plan.h"

namespace moe::model {
namespace {

// src/transport/ibgda/queues.h: requests, slots per request, bytes per slot.
constexpr int kQueuePairBytes = 256 * 4 * 64;
constexpr int kRouteWarps = 64;  // for the cuda backend: docs/reference/memory.md

CommShape shapeOf(const Workload& w, int domainSize) {
  CommShape shape;
  shape.nranks = w.ranks;
  shape.domainSize = domainSize;
  shape.rowBytesMax = 2 * w.hidden;
  shape.sideBytesMax = static_cast<int>(rowBytes(RowType::fp8, w.hidden)) - w.hidden;
  shape.topkMax = w.topk;
  shape.expertsMax = w.expertCount();
  return shape;
}

CommShape llShape(const Workload& w, int domainSize) {
  CommShape shape = shapeOf(w, domainSize);
  shape.ll = true;
  shape.llTokensMax = w.tokens;
  return shape;
}

CommShape htShape(const Workload& w, int domainSize, std::int64_t stagingRows) {
  CommShape shape = shapeOf(w, domainSize);
  shape.ht = true;
  shape.tokensMax = w.tokens;
  shape.stagingRows = stagingRows;
  return shape;
}

std::uint64_t handleBytes(const Workload& w, int domainSize) {
  HandleShape shape{ExpertMap{w.expertCount(), w.ranks}};
  shape.domains = w.ranks / domainSize;
  shape.topk = w.topk;
  shape.tokensMax = w.tokens;
  shape.routeWarpsMax = kRouteWarps;
  HandleView view{};
  return static_cast<std::uint64_t>(layOutHandle(shape, nullptr, &view));
}

}  // namespace

Footprint footprintOf(const Workload& ll, const Workload& ht, int domainRanks) {
  const int inDomain = std::min(domainRanks, ll.ranks), peers = ll.ranks - inDomain;
  const WindowLayout window = WindowPlan::of(llShape(ll, inDomain));
  Footprint f{};
  f.llWindow = window.totalBytes;
  f.htWindow = WindowPlan::of(htShape(ht, inDomain, std::int64_t{ht.ranks} * ht.tokens)).totalBytes;
  f.htWindowUnstaged = WindowPlan::of(htShape(ht, inDomain, 0)).totalBytes;
  f.htHandle = handleBytes(ht, inDomain);
  f.routeCountsArrive = static_cast<std::uint64_t>(ll.ranks - 1) * static_cast<std::uint64_t>(window.countStride) * 4;
  f.queuePairs = std::int64_t{peers} * topology::queuePairsPerPeer(0, 0, peers);
  f.queueBytes = static_cast<std::uint64_t>(f.queuePairs) * kQueuePairBytes;
  return f;
}

}  // namespace moe::model
