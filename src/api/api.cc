// The C ABI: checks pointers and struct sizes, finds the C++ objects and translates errors. It has no logic.
#include "api/guard.h"
#include "base/sized_struct.h"
#include "bootstrap/group/unique_id.h"
#include "comm/config/config.h"
#include "comm/handle/calls.h"
#include "comm/handle/memory_size.h"
#include "comm/handle/requests.h"
#include "device/rows/row_math.h"

using moe::Comm;
using moe::Handle;

namespace {

Comm* commOf(moeComm_t comm) {
  return reinterpret_cast<Comm*>(comm);
}
Handle* handleOf(moeHandle_t handle) {
  return reinterpret_cast<Handle*>(handle);
}

std::chrono::milliseconds timeoutOf(const moe::Config& config) {
  return std::chrono::milliseconds(config.timeoutMs);
}

// Rank 0 serves the meeting. If it gives up, the ranks that wait there learn the reason.
std::unique_ptr<Comm> createFor(const moe::LaunchEnvironment& launch, const moe::Config& config) {
  const moeUniqueId_t id =
      moe::bootstrap::uniqueIdFor(launch.rootHost, launch.rootPort, launch.secret, timeoutOf(config));
  const auto create = [&] { return Comm::create(launch.nranks, launch.rank, id, config, 0); };
  if (launch.rank != 0) return create();
  const auto meeting = moe::bootstrap::serveUniqueId(id, timeoutOf(config));
  try {
    return create();
  } catch (...) {
    if (const auto why = meeting.giveUp(moe::currentErrorOf(0))) throw moe::Error(*why);
    throw;
  }
}

moe::AllowedLosses lossesOf(const moeRecovery_t& recovery) {
  const std::int32_t count = recovery.evictedCount;
  if (count < 0) {
    throw moe::Error(moeInvalidArgument, "recovery.evictedCount is " + std::to_string(count) + ", must be at least 0");
  }
  moe::require(count == 0 || recovery.evicted != nullptr, "recovery.evicted is NULL");
  return {recovery.lossesMax, {recovery.evicted, static_cast<std::size_t>(count)}};
}

std::int64_t rowBytesOf(const auto& args) {
  return std::int64_t{args.hidden} * moe::elementBytes(args.rowType);
}

}  // namespace

moeResult_t moeGetVersion(int32_t* version) {
  return moe::guard(nullptr, [&] {
    moe::require(version != nullptr, "version is NULL");
    *version = MOE_VERSION_CODE;
  });
}

const char* moeGetErrorString(moeResult_t result) {
  switch (result) {
    case moeSuccess:
      return "success";
    case moeInvalidArgument:
      return "invalid argument";
    case moeInvalidUsage:
      return "invalid usage";
    case moeCudaError:
      return "CUDA error";
    case moeSystemError:
      return "system error";
    case moeRemoteError:
      return "another rank failed";
    case moeTimeout:
      return "timeout";
    case moeAborted:
      return "aborted";
    case moeUnsupported:
      return "unsupported";
    case moeInProgress:
      return "in progress";
    case moeInternalError:
      return "internal error";
  }
  return "unknown result";
}

const char* moeGetLastError(moeComm_t comm) {
  if (comm == nullptr) return moe::threadError().text();
  if (!Comm::is(comm)) return moe::kNoComm;
  return commOf(comm)->isForked() ? moe::threadError().text() : commOf(comm)->errors().text();
}

moeResult_t moeGetUniqueId(moeUniqueId_t* id) {
  return moe::guard(nullptr, [&] {
    moe::require(id != nullptr, "id is NULL");
    const moe::Config config = moe::resolveConfig(nullptr);
    *id = moe::bootstrap::createUniqueId(timeoutOf(config), config.interfaceName);
  });
}

moeResult_t moeCommGetMemorySize(int32_t nranks, const moeConfig_t* config, moeMemorySize_t* bytes) {
  return moe::guard(nullptr, [&] {
    moe::requireRanks(nranks);
    moe::writeStruct(bytes, moe::memorySize(nranks, moe::resolveConfig(config)), "bytes");
  });
}

moeResult_t moeCommInit(moeComm_t* comm, int32_t nranks, int32_t rank, const moeUniqueId_t* id,
                        const moeConfig_t* config) {
  return moe::guard(nullptr, [&] {
    moe::require(comm != nullptr, "comm is NULL");
    moe::require(id != nullptr, "id is NULL");
    *comm = reinterpret_cast<moeComm_t>(Comm::create(nranks, rank, *id, moe::resolveConfig(config)).release());
  });
}

moeResult_t moeCommInitFromEnv(moeComm_t* comm, const moeConfig_t* config) {
  return moe::guard(nullptr, [&] {
    moe::require(comm != nullptr, "comm is NULL");
    const moe::Config resolved = moe::resolveConfig(config);
    const moe::LaunchEnvironment launch = moe::launchFromEnvironment();
    *comm = reinterpret_cast<moeComm_t>(createFor(launch, resolved).release());
  });
}

moeResult_t moeCommDestroy(moeComm_t comm) {
  if (comm == nullptr) return moeSuccess;
  if (!Comm::is(comm)) return moe::refuseComm(comm);
  // In a forked process the communicator stays: destroying it would wait for threads that do not exist there.
  if (commOf(comm)->isForked()) return moeSuccess;
  return moe::guard(nullptr, [&] { delete commOf(comm); });
}

moeResult_t moeCommAbort(moeComm_t comm) {
  if (!Comm::is(comm)) return moe::refuseComm(comm);
  return moe::guard(commOf(comm), [&] { commOf(comm)->abort(); });
}

moeResult_t moeCommSetTimeout(moeComm_t comm, int32_t timeoutMs) {
  if (!Comm::is(comm)) return moe::refuseComm(comm);
  return moe::guardAlive(commOf(comm), [&] { commOf(comm)->setTimeout(timeoutMs); });
}

moeResult_t moeCommSuspend(moeComm_t comm) {
  if (!Comm::is(comm)) return moe::refuseComm(comm);
  return moe::guardAlive(commOf(comm), [&] { commOf(comm)->suspend(); });
}

moeResult_t moeCommResume(moeComm_t comm) {
  if (!Comm::is(comm)) return moe::refuseComm(comm);
  return moe::guardAlive(commOf(comm), [&] { commOf(comm)->resume(); });
}

moeResult_t moeCommDisconnect(moeComm_t comm) {
  if (!Comm::is(comm)) return moe::refuseComm(comm);
  return moe::guardAlive(commOf(comm), [&] { commOf(comm)->disconnect(); });
}

moeResult_t moeCommReconnect(moeComm_t comm, const moeUniqueId_t* id) {
  if (!Comm::is(comm)) return moe::refuseComm(comm);
  return moe::guardAlive(commOf(comm), [&] {
    moe::require(id != nullptr, "id is NULL");
    commOf(comm)->reconnect(*id);
  });
}

moeResult_t moeCommRecover(moeComm_t comm, moeRecovery_t* recovery, int32_t timeoutMs) {
  if (!Comm::is(comm)) return moe::refuseComm(comm);
  return moe::guard(commOf(comm), [&] {
    moeRecovery_t mine = MOE_RECOVERY_INITIALIZER;
    if (recovery != nullptr) mine = moe::readStruct(recovery, "recovery", mine);
    mine.memoryFresh = commOf(comm)->recover(lossesOf(mine), timeoutMs) ? 1 : 0;
    const std::vector<int>& lost = commOf(comm)->lost();
    mine.losses = static_cast<std::int32_t>(lost.size());
    if (mine.lost != nullptr) std::copy(lost.begin(), lost.end(), mine.lost);
    if (recovery != nullptr) moe::writeStruct(recovery, mine, "recovery");
  });
}

moeResult_t moeCommReplace(moeComm_t comm, int32_t rank, moeUniqueId_t* id) {
  if (!Comm::is(comm)) return moe::refuseComm(comm);
  return moe::guard(commOf(comm), [&] {
    moe::require(id != nullptr, "id is NULL");
    *id = commOf(comm)->replace(rank);
  });
}

moeResult_t moeCommDump(moeComm_t comm, const char* path) {
  if (!Comm::is(comm)) return moe::refuseComm(comm);
  return moe::guard(commOf(comm), [&] { commOf(comm)->dump(path); });
}

moeResult_t moeCommGetAsyncError(moeComm_t comm, moeResult_t* error) {
  if (!Comm::is(comm)) return moe::refuseComm(comm);
  return moe::guard(commOf(comm), [&] {
    moe::require(error != nullptr, "error is NULL");
    *error = commOf(comm)->status();
  });
}

moeResult_t moeGetLimits(moeComm_t comm, moeLimits_t* limits) {
  if (comm != nullptr && !Comm::is(comm)) return moe::refuseComm(comm);
  return moe::guard(commOf(comm), [&] {
    using moe::Limits;
    moeLimits_t result = MOE_LIMITS_INITIALIZER;
    result.ranksMax = Limits::kRanks;
    result.topkMax = Limits::kTopk;
    result.expertsMax = Limits::kExperts;
    result.tokensMax = Limits::kTokens;
    result.llTokensMax = Limits::kLlTokens;
    result.rowAlignment = Limits::kRowAlignment;
    result.rowBytesMax = Limits::kRowBytes;
    result.sideBytesMax = Limits::kSideBytes;
    result.outstandingMax = moe::kParities;
    result.llSets = moe::kLlSetsMax;
    if (comm != nullptr) {
      const moe::CommShape& shape = commOf(comm)->shape();
      result.ranksMax = shape.nranks;
      result.topkMax = shape.topkMax;
      result.expertsMax = shape.expertsMax;
      result.tokensMax = shape.ht ? shape.tokensMax : 0;
      result.llTokensMax = shape.ll ? shape.llTokensMax : 0;
      result.rowBytesMax = shape.rowBytesMax;
      result.sideBytesMax = shape.sideBytesMax;
      result.llSets = shape.ll ? shape.llSets : 0;
    }
    moe::writeStruct(limits, result, "limits");
  });
}

moeResult_t moeMemAlloc(moeComm_t comm, size_t bytes, void** memory) {
  if (!Comm::is(comm)) return moe::refuseComm(comm);
  return moe::guardAlive(commOf(comm), [&] {
    moe::require(memory != nullptr, "memory is NULL");
    *memory = commOf(comm)->allocateWindow(bytes);
  });
}

moeResult_t moeMemFree(moeComm_t comm, void* memory) {
  if (!Comm::is(comm)) return moe::refuseComm(comm);
  return moe::guard(commOf(comm), [&] { commOf(comm)->freeWindow(memory); });
}

moeResult_t moeHandleCreate(moeHandle_t* handle, moeComm_t comm, const moeHandleConfig_t* config) {
  if (!Comm::is(comm)) return moe::refuseComm(comm);
  return moe::guardAlive(commOf(comm), [&] {
    moe::require(handle != nullptr, "handle is NULL");
    commOf(comm)->requireAwake("moeHandleCreate");
    const moeHandleConfig_t defaults = MOE_HANDLE_CONFIG_INITIALIZER;
    const moeHandleConfig_t own = moe::readStruct(config, "config", defaults);
    *handle = reinterpret_cast<moeHandle_t>(commOf(comm)->add(std::make_unique<Handle>(*commOf(comm), own)));
  });
}

moeResult_t moeHandleDestroy(moeHandle_t handle) {
  if (handle == nullptr) return moeSuccess;
  if (!Handle::is(handle)) return moe::refuseHandle(handle);
  Comm& comm = handleOf(handle)->comm();
  return moe::guard(&comm, [&] { comm.remove(handleOf(handle)); });
}

moeResult_t moeHandleSetTokensBound(moeHandle_t handle, int32_t tokensBound) {
  if (!Handle::is(handle)) return moe::refuseHandle(handle);
  return moe::guardAlive(&handleOf(handle)->comm(), [&] { handleOf(handle)->setTokensBound(tokensBound); });
}

moeResult_t moeHandleSetPlacement(moeHandle_t handle, const moePlacement_t* placement, moeStream_t stream) {
  if (!Handle::is(handle)) return moe::refuseHandle(handle);
  return moe::guardAlive(&handleOf(handle)->comm(), [&] {
    if (placement == nullptr) return handleOf(handle)->setPlacement(nullptr, stream);
    const moePlacement_t defaults = MOE_PLACEMENT_INITIALIZER;
    const moePlacement_t own = moe::readStruct(placement, "placement", defaults);
    handleOf(handle)->setPlacement(&own, stream);
  });
}

moeResult_t moeRoute(moeHandle_t handle, const void* topkIdx, const float* topkWeights, int32_t tokens,
                     moeStream_t stream) {
  if (!Handle::is(handle)) return moe::refuseHandle(handle);
  return moe::tracedAwake(handleOf(handle), "moeRoute", [&](auto&) {
    moe::route(*handleOf(handle), {topkIdx, topkWeights, tokens}, stream);
  });
}

moeResult_t moeRouteDispatch(moeHandle_t handle, const void* topkIdx, const float* topkWeights, int32_t tokens,
                             const moeDispatchArgs_t* args, moeStream_t stream) {
  if (!Handle::is(handle)) return moe::refuseHandle(handle);
  return moe::tracedAwake(handleOf(handle), "moeRouteDispatch", [&](std::int64_t& rowBytes) {
    if (tokens == moeTokensRefused) return moe::refuseRouteDispatch(*handleOf(handle), stream);
    const moe::DispatchRequest own(args);
    rowBytes = rowBytesOf(own.args);
    moe::routeDispatch(*handleOf(handle), {topkIdx, topkWeights, tokens}, own, stream);
  });
}

moeResult_t moeHandleGetCounts(moeHandle_t handle, moeCounts_t* counts) {
  if (!Handle::is(handle)) return moe::refuseHandle(handle);
  return moe::traced(handleOf(handle), "moeHandleGetCounts", [&](auto&) {
    moe::checkStructSize(counts, "counts");
    moe::writeStruct(counts, handleOf(handle)->counts(), "counts");
  });
}

moeResult_t moeHandleGetDeviceCounts(moeHandle_t handle, moeDeviceCounts_t* counts) {
  if (!Handle::is(handle)) return moe::refuseHandle(handle);
  return moe::guard(&handleOf(handle)->comm(),
                    [&] { moe::writeStruct(counts, handleOf(handle)->deviceCounts(), "counts"); });
}

moeResult_t moeHandleGetStatus(moeHandle_t handle, moeHandleStatus_t* status) {
  if (!Handle::is(handle)) return moe::refuseHandle(handle);
  return moe::guard(&handleOf(handle)->comm(), [&] { moe::writeStruct(status, handleOf(handle)->status(), "status"); });
}

moeResult_t moeGetDispatchLayout(const void* topkIdx, int32_t tokens, const moeDispatchLayout_t* layout,
                                 moeStream_t stream) {
  const moe::CallRange range("moeGetDispatchLayout");
  return moe::guard(nullptr, [&] {
    const moeDispatchLayout_t defaults = MOE_DISPATCH_LAYOUT_INITIALIZER;
    moe::dispatchLayout(topkIdx, tokens, moe::readStruct(layout, "layout", defaults), stream);
  });
}

moeResult_t moeHandleGetStatistics(moeHandle_t handle, moeStatistics_t* statistics) {
  if (!Handle::is(handle)) return moe::refuseHandle(handle);
  return moe::guard(&handleOf(handle)->comm(),
                    [&] { moe::writeStruct(statistics, handleOf(handle)->statistics(), "statistics"); });
}

moeResult_t moeHandleGetView(moeHandle_t handle, moeHandleView_t* view) {
  if (!Handle::is(handle)) return moe::refuseHandle(handle);
  return moe::guard(&handleOf(handle)->comm(), [&] { moe::writeStruct(view, handleOf(handle)->slots(), "view"); });
}

moeResult_t moeHandleGetArrivals(moeHandle_t handle, moeArrivals_t* arrivals) {
  if (!Handle::is(handle)) return moe::refuseHandle(handle);
  return moe::guard(&handleOf(handle)->comm(),
                    [&] { moe::writeStruct(arrivals, handleOf(handle)->arrivals(), "arrivals"); });
}

moeResult_t moeDispatch(moeHandle_t handle, const moeDispatchArgs_t* args, moeStream_t stream) {
  if (!Handle::is(handle)) return moe::refuseHandle(handle);
  return moe::tracedAwake(handleOf(handle), "moeDispatch", [&](std::int64_t& rowBytes) {
    const moe::DispatchRequest own(args);
    rowBytes = rowBytesOf(own.args);
    moe::dispatch(*handleOf(handle), own, stream);
  });
}

moeResult_t moeCombine(moeHandle_t handle, const moeCombineArgs_t* args, moeStream_t stream) {
  if (!Handle::is(handle)) return moe::refuseHandle(handle);
  return moe::tracedAwake(handleOf(handle), "moeCombine", [&](std::int64_t& rowBytes) {
    const moe::CombineRequest own(args);
    rowBytes = rowBytesOf(own.args);
    moe::combine(*handleOf(handle), own, stream);
  });
}

moeResult_t moeComplete(moeHandle_t handle, moeStream_t stream) {
  if (!Handle::is(handle)) return moe::refuseHandle(handle);
  return moe::tracedAwake(handleOf(handle), "moeComplete", [&](auto&) { handleOf(handle)->complete(stream); });
}

moeResult_t moeCompleteDispatch(moeHandle_t handle, const moeDispatchArgs_t* args, moeStream_t stream) {
  if (!Handle::is(handle)) return moe::refuseHandle(handle);
  return moe::tracedAwake(handleOf(handle), "moeCompleteDispatch", [&](std::int64_t& rowBytes) {
    const moe::DispatchRequest own(args);
    rowBytes = rowBytesOf(own.args);
    moe::completeDispatch(*handleOf(handle), own, stream);
  });
}
