#include "comm/handle/memory_size.h"

#include <algorithm>
#include <cstddef>

#include "backend/cuda_plan.h"
#include "comm/communicator/comm.h"
#include "comm/handle/statistics.h"
#include "comm/recorder/refused.h"
#include "device/view/handle_layout.h"
#include "device/view/ll_tables.h"
#include "device/view/step_record.h"
#include "device/view/window_layout.h"

namespace moe {
namespace {

struct Sizes {
  std::uint64_t device = 0, host = 0;

  Sizes largest(const Sizes& other) const { return {std::max(device, other.device), std::max(host, other.host)}; }
};

// The sizes of the memory that comm_init.cc allocates beside the window.
Sizes ownSizes(const CommShape& c, const Config& config, bool host) {
  const auto ranks = static_cast<std::uint64_t>(c.nranks);
  Sizes sizes{sizeof(CommState) + ranks * sizeof(std::uint8_t*),
              2 * sizeof(Failure) + sizeof(WaitOrders) + ranks * sizeof(std::uint32_t)};
  if (c.domains() > 1) sizes.device += sizeof(FarView);
  if (config.recorder == 0) return sizes;
  sizes.device += sizeof(StepRecorder);
  if (!host) sizes.host += sizeof(StepRecorder) + sizeof(std::uint64_t);  // for the copies that a snapshot takes
  return sizes;
}

// A handle with every option that takes memory. `counted`: with a budget and counts of all experts, which exclude the
// tables of a dispatch that routes.
HandleShape largestShape(const CommShape& c, bool lowLatency, Layout layout, bool counted) {
  HandleShape s;
  s.map = ExpertMap(c.expertsMax, c.nranks);
  s.domains = c.domains();
  s.topk = c.topkMax;
  s.layout = layout;
  s.lowLatency = lowLatency;
  s.tokensMax = lowLatency ? c.llTokensMax : c.tokensMax;
  s.arrivals = layout != Layout::flat;
  s.rowsBudget = counted ? static_cast<int>(std::min<std::int64_t>(allTokensMax(s), Limits::kArrivingRows)) : 0;
  s.expertCounts = counted;
  return s;
}

// The tables of a dispatch that routes are counted at their limit, because handles with fewer tokens may have them
// where the largest handle has none.
Sizes sizesOf(HandleShape shape, bool host, int threads) {
  shape.routeWarpsMax = host ? threads : kRouteBlocksMax;
  shape.countsStay = shape.lowLatency && !host;
  HandleView view{};
  std::int64_t device = layOutHandle(shape, nullptr, &view);
  if (host && shape.lowLatency) device += std::int64_t{threads} * kLlTableBytesMax;
  const int experts = shape.map.count(0);
  return {static_cast<std::uint64_t>(device) + Statistics::bytes(shape.map.nranks, experts, true),
          static_cast<std::uint64_t>(toldBytes(shape)) + kRefusedIdsBytes};
}

Sizes largestHandle(const CommShape& c, bool host, int threads) {
  Sizes most;
  for (const bool lowLatency : {false, true}) {
    if (lowLatency ? !c.ll : !c.ht) continue;
    for (const Layout layout : {Layout::flat, Layout::expertMajorPadded}) {
      for (const bool counted : {false, true}) {
        most = most.largest(sizesOf(largestShape(c, lowLatency, layout, counted), host, threads));
      }
    }
  }
  return most;
}

}  // namespace

moeMemorySize_t memorySize(int nranks, const Config& config) {
  const CommShape shape = shapeOf(nranks, domainSizeOf(nranks, config), config);
  const WindowPlan at = WindowPlan::of(shape);
  const int threads = config.hostThreads > 0 ? config.hostThreads : HostOptions::kThreadsAuto;
  Sizes own, handle;
  for (const bool host : {false, true}) {
    if (config.backend == (host ? moeBackendCuda : moeBackendHost)) continue;
    own = own.largest(ownSizes(shape, config, host));
    handle = handle.largest(largestHandle(shape, host, threads));
  }
  moeMemorySize_t bytes = MOE_MEMORY_SIZE_INITIALIZER;
  bytes.windowBytes = at.totalBytes;
  bytes.controlBytes = at.controlBytes;
  bytes.llBytes = at.llBytes;
  bytes.htBytes = at.htBytes;
  bytes.heapBytes = static_cast<std::uint64_t>(shape.heapBytes);
  bytes.privateBytes = own.device;
  bytes.hostBytes = own.host;
  bytes.handleBytes = handle.device;
  bytes.handleHostBytes = handle.host;
  bytes.localOnlyBytes = WindowPlan::of(localShape(shape)).totalBytes + sizeof(CommState);
  return bytes;
}

}  // namespace moe
