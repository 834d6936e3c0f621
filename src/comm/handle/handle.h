// A handle: a route and the operations that use it. It checks what the host can know, fills the parameters of the steps
// and launches them. Everything that depends on the routing happens on the device.
#pragma once

#include <array>

#include "comm/communicator/comm.h"
#include "comm/handle/argument_checks.h"
#include "comm/handle/tickets.h"
#include "device/view/handle_layout.h"

namespace moe {

class Handle : public Alive<0x6d6f65636f6d6d48> {
 public:
  // Throws moeInvalidArgument if the configuration does not fit the communicator.
  Handle(Comm& comm, const moeHandleConfig_t& config);
  ~Handle();

  Comm& comm() { return comm_; }
  int tokens() const { return tokens_; }
  void setTokensBound(std::int32_t bound);
  // NULL: none.
  void setPlacement(const moePlacement_t* placement, moeStream_t stream);
  void route(const RouteArgs& args, moeStream_t stream);
  void routeDispatch(const RouteArgs& route, const moeDispatchArgs_t& args, moeStream_t stream);
  // This rank takes part with a refusal instead of its arguments.
  void refuseRouteDispatch(moeStream_t stream);
  void dispatch(const moeDispatchArgs_t& args, moeStream_t stream);
  void combine(const moeCombineArgs_t& args, moeStream_t stream);
  void complete(moeStream_t stream);
  moeCounts_t counts();
  moeDeviceCounts_t deviceCounts() const;
  moeHandleStatus_t status();
  void describeSent(const moeSent_t& sent, moeStream_t stream);
  moeStatistics_t statistics() const;
  moeHandleView_t slots() const;
  moeArrivals_t arrivals() const;

 private:
  enum class Pending { nothing, dispatch, combine };
  void waitForCounts();
  // As Comm's. Steps of a room of its own reach no heap: there memory is checked, but has no offset.
  std::int64_t windowOffset(const void* memory, std::uint64_t bytes, const char* name) const;
  // The staging area that an operation uses, or kNotStaged.
  int stagingOf(Pending kind, const StepParams& p) const;

  // A call that is being checked.
  struct Call {
    const char* name;
    int tokens;              // of the route that the operation uses
    int bound;               // of that route: most tokens of a rank
    std::int32_t sms;        // 0: the communicator's setting
    const RouteArgs* route;  // that the same call makes; NULL: it was made before
  };
  struct CallCounters {
    std::int32_t* rows;
    std::int64_t* waitNs;
  };
  // Arguments of a combine that no step reads. 0: not given.
  struct CombineExtras {
    std::int64_t* waitNs;
    std::int32_t completeSms;
  };
  // What operations add up: see moeStatistics_t. Of a handle without statistics, `waits` alone.
  struct Counters {
    std::int64_t *rowsPerExpert, *rowsPerRank, *dispatchWaitNs, *combineWaitNs, *lateSteps;
    std::uint64_t* waits;
  };
  // A step that may be launched.
  struct Operation {
    Step step;
    StepParams params;
    LaunchShape shape;
    bool sendOnly;
    LaunchShape completing{};  // of moeComplete
  };

  // Of payloads that there are not, NULL.
  using PayloadExtents = std::array<Extent, kPayloadsMax>;

  void placeOwnExperts();
  // Logs how this handle was made.
  void tell(const moeHandleConfig_t& config, std::int64_t bytes) const;
  StepParams params() const;
  void launch(Step step, const StepParams& params, const LaunchShape& shape, moeStream_t stream);
  void checkRow(std::int32_t rowType, std::int32_t hidden, const char* call) const;
  void checkRouted(const char* call) const;
  void checkNotPending(const char* call) const;
  void checkOutstanding(Pending kind, const char* call) const;
  int requireStaging(const char* call, const char* name) const;
  void checkOutputs(const Call& call, const moeDispatchArgs_t& args) const;
  void checkPlaces(const Call& call, const moeDispatchArgs_t& args, std::int64_t rowBytes,
                   std::int64_t codeBytes) const;
  void checkPadding(const moeDispatchArgs_t& args) const;
  void checkGrads(const moeCombineArgs_t& args) const;
  void checkWeights(const moeCombineArgs_t& args) const;
  void checkWire(const moeCombineArgs_t& args) const;
  void checkReady(const moeCombineArgs_t& args) const;
  ReadyWords readyWords(const moeCombineArgs_t& args) const;
  std::int64_t readyWordCount(const moeCombineArgs_t& args) const;
  Parts wireParts(const LaunchShape& shape, int rows, const CombineArgs& args) const;
  void checkPlaces(const moeCombineArgs_t& args, std::int64_t rowBytes) const;
  void forgetPending();
  // Names what bounds a route's tokens.
  void checkTokens(std::int32_t tokens) const;
  StepParams routeParams(const RouteArgs& args, const char* call) const;
  void launchRoute(StepParams& params, moeStream_t stream);
  void noteRoute(const StepParams& params) noexcept;
  Operation dispatchOperation(const Call& call, const moeDispatchArgs_t& args) const;
  DispatchArgs dispatchArgs(const Call& call, const moeDispatchArgs_t& args) const;
  DescribeArgs describeArgs(const moeDispatchArgs_t& args) const;
  void describeArrived(const StepParams& params, moeStream_t stream);
  void makeCounters(bool statistics);
  bool keepsStatistics() const { return counters_.lateSteps != nullptr; }
  // What an operation adds to, and whether its waits are timed. `call`: the caller's counters.
  void count(Pending kind, const CallCounters& call, StepParams* params) const;
  // The steps behind an operation, for those who ask.
  void follow(Pending kind, const StepParams& params, moeStream_t stream);
  CastArgs castArgs(const Call& call, const moeDispatchArgs_t& args) const;
  const float* rowWeights(const Call& call) const;
  void checkBlockOffsets(const moeDispatchArgs_t& args) const;
  ScaleGrid wordGrid(const Call& call, std::int64_t outRowsMax, int layout, int words) const;
  ScaleGrid blockedGrid(const Call& call, int words) const;
  std::int64_t blockedBytes(const Call& call, std::int64_t rows, std::int64_t rowBytes) const;
  std::int64_t outScaleBytes(const Call& call, const moeDispatchArgs_t& args) const;
  void checkPayloads(const Call& call, const moeDispatchArgs_t& args) const;
  PayloadArgs payloadArgs(const Call& call, const moeDispatchArgs_t& args) const;
  ScaleGrid payloadGrid(const Call& call, const moeDispatchArgs_t& args, int i) const;
  std::int64_t payloadOutBytes(const Call& call, const moeDispatchArgs_t& args, int i) const;
  void placePayloads(const moeDispatchArgs_t& args, DispatchArgs* out) const;
  void takePayloadAsArray(DispatchArgs* out) const;
  PayloadExtents payloadInputs(const Call& call, const moeDispatchArgs_t& args) const;
  PayloadExtents payloadOutputs(const Call& call, const moeDispatchArgs_t& args) const;
  void placeOutput(const Call& call, const moeDispatchArgs_t& args, DispatchArgs* out) const;
  void placeRows(const moeCombineArgs_t& args, CombineArgs* out) const;
  CombineArgs combineArgs(const moeCombineArgs_t& args) const;
  void launchWithRoute(StepParams& routing, Operation& sending, moeStream_t stream);
  void launchCombine(const Call& call, const CombineExtras& extras, Operation& summing, bool coded, moeStream_t stream);
  // The same of the other calls.
  std::size_t hostBytes() const;
  void writeRefusedIds();
  void checkMayRefuse(const char* call, moeStream_t stream) const;
  void refuseRoute(moeStream_t stream);
  void refuseDispatch(moeStream_t stream);
  void refuseCombine(const moeCombineArgs_t& args, moeStream_t stream);
  Operation refusedDispatch(const Call& call) const;
  CombineArgs refusedCombine(const moeCombineArgs_t& args);
  void run(Pending kind, Operation& operation, moeStream_t stream);
  bool lowLatency() const { return shape_.lowLatency; }
  std::size_t indexBytes() const { return shape_.wideIndex ? sizeof(std::int64_t) : sizeof(std::int32_t); }
  bool rowsPerExpert() const {
    return shape_.layout == Layout::expertMajor || shape_.layout == Layout::expertMajorPadded;
  }
  // Whether the operation only moves rows: they go straight to or come straight from their final place, without a copy
  // or sum here.
  bool onlyMoves(const DispatchArgs& d) const;
  bool onlyMoves(const CombineArgs& a) const;
  // `rowBytes`: the bytes that are cut into parts. `crossing`: the bytes per token and rank that cross between ranks.
  Workload workload(const Call& call, Step step, std::uint32_t rowBytes, std::uint32_t crossing, bool movesOnly) const;
  Series seriesOf(Pending kind) const;
  // The rows that this rank sends if each of its tokens goes to as many ranks as possible. It only decides how rows are
  // cut among warps.
  int arrivingRowsGuess(int tokens) const { return tokens * view_.destinationsMax; }

  Comm& comm_;
  const bool localOnly_;
  HandleShape shape_;
  int firstExpert_;  // among all ranks' experts: this rank's first one
  Room& room_;
  Memory block_, hostCounts_, counterMemory_;
  const std::uint8_t* refusedIds_ = nullptr;  // behind the host's counts
  Memory refusedSums_;                        // of refused LL combines; made by the first one
  std::size_t refusedSumsBytes_ = 0;
  Counters counters_{};
  HandleView view_{};              // its tokensMax and terms: of the last route
  Placement* placementMemory_;     // for a placement's table; view_ names it while there is one
  bool placementWritten_ = false;  // captured routes may use the table from now on
  int tokens_ = -1;                // of the last route; -1: none yet
  int tokensBound_;                // of the next one
  bool routesInDispatch_;
  Tickets tickets_;
  std::vector<std::int32_t> countsOnHost_;  // of the latest moeHandleGetCounts, in the order of the words
  std::string sentence_;                    // of the latest status
  Pending pending_ = Pending::nothing;      // a send-only operation that awaits complete()
  std::uint64_t pendingNumber_ = 0;
  Step pendingStep_{};
  StepParams pendingParams_{};
  LaunchShape pendingShape_;
};

}  // namespace moe
