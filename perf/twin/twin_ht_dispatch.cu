#include "device/protocol/ht_dispatch.h"
#include "perf/twin/twin_ht_dispatch.h"
#include "perf/twin/twin_move.h"

namespace moe::perf {
namespace twin {

constexpr int kDescribingWarps = 4;  // of a block
constexpr int kBlockThreads = (kMovingWarps + kDescribingWarps) * kLanes;

struct BlockState {
  MoveDesk desks[kMovingWarps];
  std::uint8_t* rows[kTwinRanksMax];  // where each rank's output begins, as mapped here
  std::uint8_t* side[kTwinRanksMax];
  std::uint64_t epoch, number;
  std::uint32_t done;  // warps that have stored all
  bool good;
};

// ---- Beginning: where the outputs are. The first warp of a block, lane i for rank i.

MOE_LANES void offerOutput(const CommView& c, const DispatchArgs& d, std::uint64_t epoch) {
  if (lane() >= c.nranks) return;
  *outputRecord(c, lane(), epoch, c.rank) = {d.outRowsOffset, d.outSideOffset, d.capacity, d.staged, d.terms, 0};
  cuda_flags::storeRelease(c.in<Flag>(lane(), c.at.htOutputReady) + c.rank, flagWord(epoch));
}

MOE_LANES bool lookAtOutput(const StepParams& p, std::uint64_t epoch, BlockState& block) {
  const CommView& c = p.comm;
  const int to = lane();
  if (to >= c.nranks) return true;
  if (!awaitFlag(c, c.mine<Flag>(c.at.htOutputReady) + to, epoch, Phase::dispatchOutput, to)) return false;
  const OutputRecord out = *outputRecord(c, c.rank, epoch, to);
  const Failure fault = outputFault(p.handle, p.dispatch, out, to);
  if (fault.fault != Fault::none) report(c, fault);
  block.rows[to] = c.in<std::uint8_t>(to, out.rows);
  block.side[to] = c.in<std::uint8_t>(to, out.side);
  return fault.fault == Fault::none;
}

MOE_LANES void beginBlock(const StepParams& p, BlockState& block) {
  const CommView& c = p.comm;
  CommState* state = c.state;
  const std::uint64_t epoch = state->epoch[kHtDispatchChannel] + 1, number = state->handed[0][kHtDispatchChannel] + 1;
  bool good = __all_sync(kAll, cuda_flags::loadRelaxed(&state->failuresClaimed) == 0);
  __syncwarp();  // all lanes have read what another block may change when this one has begun
  if (good) {
    const Flag share = announcementShare(blockIdx.x == 0, static_cast<int>(gridDim.x));
    if (lane() == 0) cuda_flags::addReleaseOnDevice(&state->begun[kHtDispatchChannel], share);
    if (blockIdx.x == 0) offerOutput(c, p.dispatch, epoch);
    good = __all_sync(kAll, lookAtOutput(p, epoch, block));
  }
  if (lane() == 0) block.epoch = epoch, block.number = number, block.good = good;
}

// ---- The rows

// The last warp of a block that comes here speaks for all of them.
MOE_LANES void announceRows(const CommView& c, std::uint32_t* done) {
  __syncwarp();
  std::uint32_t before = 0;
  if (lane() == 0) before = cuda_flags::addInBlock(done, 1);
  if (__shfl_sync(kAll, before, 0) + 1 != kMovingWarps) return;
  __syncwarp();  // what lane 0 acquired is now every lane's
  if (lane() >= c.nranks) return;
  cuda_flags::fence();
  const Flag share = announcementShare(blockIdx.x == 0, static_cast<int>(gridDim.x));
  cuda_flags::addRelaxed(c.in<Flag>(lane(), c.at.htRowsReady) + c.rank, share);
}

// Before the outputs are known: the first tokens' destinations are on their way while the ranks meet.
MOE_LANES Destination prepareMoving(const StepParams& p, MoveDesk& desk) {
  if (lane() == 0) {
    for (std::uint64_t& full : desk.full) cuda_bulk::initBarrier(cuda_bulk::sharedAddress(&full));
    cuda_bulk::fenceBarrierInit();
  }
  __syncwarp();
  const WarpTokens mine(p);
  return mine.lookUp(mine.first);
}

MOE_LANES void runMoving(const StepParams& p, BlockState& block, Destination first, Pipe pipe) {
  const DispatchArgs& d = p.dispatch;
  const WarpTokens mine(p);
  cuda_bulk::fenceProxy();  // the bulk-copy engine reads what was acquired
  bool good = movePayload(mine, first, block.rows, d.rows, d.rowBytes, pipe);
  if (good && d.sideBytes != 0) {
    good = movePayload(mine, mine.lookUp(mine.first), block.side, d.side, d.sideBytes, pipe);
  }
  if (lane() == 0) cuda_bulk::waitComplete();
  if (good) announceRows(p.comm, &block.done);
}

// ---- What came

MOE_LANES void nameExpert(const HandleView& h, const DispatchArgs& d, std::int64_t place, int expert) {
  if (d.outTopkIdx == nullptr) return;
  if (h.wideIndex != 0) static_cast<std::int64_t*>(d.outTopkIdx)[place] = expert;
  if (h.wideIndex == 0) static_cast<std::int32_t*>(d.outTopkIdx)[place] = expert;
}

MOE_LANES void describeEntry(const HandleView& h, const DispatchArgs& d, int row, int n) {
  const Quad* header = h.headers + static_cast<std::int64_t>(row) * h.headerStride();
  const Quad head = header[0], entry = header[1 + n];
  if (n == 0 && d.outSourceIndex != nullptr) {
    d.outSourceIndex[row] = headSource(head) * h.tokensMax + headToken(head);
  }
  if (n >= headEntries(head)) return;
  const std::int64_t place = static_cast<std::int64_t>(row) * h.topk + entryTopk(entry);
  if (d.outTopkWeights != nullptr) d.outTopkWeights[place] = entryWeight(entry);
  nameExpert(h, d, place, entryExpert(entry));
}

// The caller's arrays, from the kept headers: whole rows per warp, entries that are not this rank's first.
MOE_LANES void describeRows(const StepParams& p, int index, int count) {
  const HandleView& h = p.handle;
  const DispatchArgs& d = p.dispatch;
  if (index == 0 && d.outExpertOffsets != nullptr) {
    for (int e = lane(); e <= h.map.count(p.comm.rank); e += kLanes) d.outExpertOffsets[e] = h.expertOffsets[e];
  }
  if (d.outSourceIndex == nullptr && d.outTopkIdx == nullptr && d.outTopkWeights == nullptr) return;
  const int each = (*h.rows + count - 1) / count, first = min(each * index, *h.rows);
  const int items = min(each, *h.rows - first) * h.topk;
  const std::int64_t begin = static_cast<std::int64_t>(first) * h.topk;
  for (int i = lane(); i < items; i += kLanes) {
    if (d.outTopkWeights != nullptr) d.outTopkWeights[begin + i] = 0.0f;
    nameExpert(h, d, begin + i, -1);
  }
  __syncwarp();
  for (int i = lane(); i < items; i += kLanes) describeEntry(h, d, first + i / h.topk, i % h.topk);
}

MOE_LANES void endEpoch(const StepParams& p, const BlockState& block) {
  CommState* state = p.comm.state;
  if (!awaitFlag(p.comm, &state->begun[kHtDispatchChannel], block.epoch, Phase::ownWarps, p.comm.rank)) return;
  state->epoch[kHtDispatchChannel] = block.epoch;
  state->handed[0][kHtDispatchChannel] = block.number;
  p.handle.state->dispatchEpoch = block.epoch;
  p.handle.state->dispatchHanded = block.number;
}

MOE_LANES void runDescribing(const StepParams& p, BlockState& block) {
  const CommView& c = p.comm;
  const int inBlock = static_cast<int>(threadIdx.x) / kLanes - kMovingWarps, blocks = static_cast<int>(gridDim.x);
  const int index = static_cast<int>(blockIdx.x) + inBlock * blocks, count = kDescribingWarps * blocks;
  if (index == count - 1 && lane() == 0) endEpoch(p, block);
  describeRows(p, index, count);
  // One warp waits for all: the kernel ends when it does.
  if (index != 0 || lane() >= c.nranks) return;
  awaitFlag(c, c.mine<Flag>(c.at.htRowsReady) + lane(), block.number, Phase::dispatchRows, lane());
}

__global__ void __launch_bounds__(kBlockThreads, 1)
    dispatchHt(const __grid_constant__ StepParams p, std::uint32_t stageBytes) {
#if __CUDA_ARCH__ >= 900
  extern __shared__ std::uint8_t dynamic[];
  __shared__ BlockState block;
  // Launched as a dependent kernel: it waits for the one ahead, and lets its own successor begin.
  asm volatile("griddepcontrol.wait;" ::: "memory");
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
  const int warp = static_cast<int>(threadIdx.x) / kLanes;
  const bool moves = warp < kMovingWarps;
  Destination first{};
  if (threadIdx.x == 0) block.done = 0;
  if (moves) first = prepareMoving(p, block.desks[warp]);
  if (warp == 0) beginBlock(p, block);
  __syncthreads();
  if (!block.good) return;
  if (!moves) return runDescribing(p, block);
  // Stages are aligned to 128 bytes; the runtime gives less by its contract.
  auto* stages = reinterpret_cast<std::uint8_t*>((reinterpret_cast<std::uintptr_t>(dynamic) + 127) / 128 * 128);
  runMoving(p, block, first,
            {block.desks[warp], stages + static_cast<std::uint32_t>(warp * kStages) * stageBytes, stageBytes});
#endif
}

}  // namespace twin

namespace {

bool canDo(const StepParams& p, const KernelShape& shape) {
  const HandleView& h = p.handle;
  return h.layout == Layout::flat && h.domains == 1 && !p.comm.split() && p.comm.nranks <= kTwinRanksMax &&
         p.dispatch.staged == 0 && p.phases == (kSendPhase | kReceivePhase) && shape.bulk &&
         shape.warpsPerBlock == twin::kMovingWarps;
}

}  // namespace

cudaError_t loadTwin() {
  cudaFuncAttributes attributes;
  cudaError_t error = cudaFuncGetAttributes(&attributes, twin::dispatchHt);
  if (error != cudaSuccess) return error;
  int device = 0, most = 0;
  error = cudaGetDevice(&device);
  if (error == cudaSuccess) error = cudaDeviceGetAttribute(&most, cudaDevAttrMaxSharedMemoryPerBlockOptin, device);
  if (error != cudaSuccess) return error;
  const int dynamic = most - static_cast<int>(attributes.sharedSizeBytes);
  return cudaFuncSetAttribute(twin::dispatchHt, cudaFuncAttributeMaxDynamicSharedMemorySize, dynamic);
}

cudaError_t launchTwin(Step step, const StepParams& params, const KernelShape& shape, cudaStream_t stream) {
  if (step != Step::htDispatch) return launchKernel(step, params, shape, stream);
  if (!canDo(params, shape)) return cudaErrorNotSupported;
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(static_cast<unsigned>(shape.blocks));
  config.blockDim = dim3(twin::kBlockThreads);
  config.dynamicSmemBytes = kernelSharedBytes(shape);
  config.stream = stream;
  cudaLaunchAttribute dependent{};
  dependent.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  dependent.val.programmaticStreamSerializationAllowed = 1;
  config.attrs = &dependent;
  config.numAttrs = shape.dependent ? 1 : 0;
  return cudaLaunchKernelEx(&config, twin::dispatchHt, params, shape.stages.bytes);
}

}  // namespace moe::perf
