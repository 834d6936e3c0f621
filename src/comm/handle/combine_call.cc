#include "comm/handle/combine_call.h"

#include "comm/handle/call_checks.h"
#include "comm/handle/workload.h"
#include "device/rows/row_math.h"
#include "device/rows/wire_row.h"
#include "device/view/terms.h"

namespace moe {
namespace {

// Whether peers read rows where they are, without a sum here.
bool onlyMoves(const Handle& handle, const CombineArgs& a) {
  return (a.inPlace != 0 || a.rows == nullptr) && !handle.view().hasRails();
}

// The most rows for which a plain step is faster. A block makes its rows one after the other, so it has few. A combine
// from places took 96 us instead of 88 with 16 rows of each block (4 x H200). With only 16 blocks of 4 rows each it
// took 23.3 us instead of 15.8. Rows in a wire format, with 16 blocks of 1 and 4 rows each, took 13.0 us instead
// of 14.1, and 23.3 instead of 16.4. In NVFP4, where other steps sum each row several times, they took 13.9 instead
// of 23.2, and 25.5 instead of 26.4 (2 x H200, 2026-11-28 and 30).
int rowsForPlainStep(Step step, const Workload& work, int blocks) {
  constexpr int kRowsOfBlock = 8, kWholeRowsOfBlock = 4;
  if (work.sms == 0) return kRowsOfBlock * blocks;
  if (!rowOf(step).codesPlainly()) return blocks / 2;
  return work.wholeRows ? kWholeRowsOfBlock * blocks : blocks;
}

// Whether rows of an HT combine go at once rather than in waves. In waves, rows are made beside the wire, but each wave
// takes some microseconds. These are times in us, at once and in 4 waves, with 2048 and 4096 rows that arrive at a
// rank:
//
//   EXPERT_MAJOR, bf16        128 / 125,  225 / 195        EXPERT_MAJOR, fp8   81 / 87,  142 / 134
//   FLAT, bf16, not in place   85 /  84,  151 / 132        FLAT, fp8           46 / 55,   74 /  84
//
// Rows of FLAT in bf16 were made for this rank too; in 6 waves, 2048 of them took 89 us. Two ranks read half of the
// coded rows where they are given (readsOwnRows), which is only possible at once: 130 us instead of 135 with 8192 rows.
// Codes of NVFP4 and LogFMT-10 take so many instructions that waves only mix them in the instruction cache: 368 / 371
// and 356 / 455 with 8192 rows in EXPERT_MAJOR (2 x H200, 2026-11-30). Rows in place are not made.
bool goesAtOnce(const Handle& handle, const CombineArgs& a, int arriving) {
  constexpr int kExpertRows = 1536, kRows = 3072, kRanksWithOwnRows = 2;
  const bool codes = a.wire != moeWireRow, perExpert = handle.rowsPerExpert();
  if (a.ready.words != nullptr) return false;
  if (a.inPlace != 0 || a.wire == moeWireNvfp4 || a.wire == moeWireLogfmt10) return true;
  if (handle.backend().kind() == moeBackendHost) return !perExpert;
  if (codes && !perExpert && handle.view().map.nranks <= kRanksWithOwnRows) return true;
  return arriving <= (codes || !perExpert ? kRows : kExpertRows);
}

// Whether the sums of an HT combine read this rank's rows where they are given, so that none are made of them. A second
// part may run when the caller's rows are gone. Coded rows that are read so are coded in the sums, for which few
// kernels have room.
bool readsOwnRows(const Handle& handle, const Operation& operation) {
  const CombineArgs& a = operation.params.combine;
  if (operation.sendOnly || handle.rowsPerExpert() || a.inPlace != 0 || a.rows == nullptr) return false;
  const bool atOnce = rowOf(operation.step).spread == Spread::once;
  return a.wire == moeWireRow || (atOnce && a.rowType == moeRowBf16 && a.wire != moeWireLogfmt10);
}

// The plain step, whose warps are blocks, if it may serve this combine and is faster. With 8 tokens of each block a
// combine from slots took 19.9 us instead of 15.2 (2 x H200, 16 multiprocessors, 2026-11-27).
Step fasterStep(const Backend& backend, const StepParams& p, Workload work, int arriving) {
  constexpr int kTokensOfBlock = 4;
  if (!backend.hasPlainSteps()) return work.step;
  const auto blocksOf = [&](Step step, int rows) {
    Workload other = work;
    other.step = step;
    other.rows = rows;
    return backend.shapeFor(other).blocks;
  };
  if (work.step == Step::combine && combinesFromSlots(p)) {
    if (work.rows <= kTokensOfBlock * blocksOf(Step::llSlotCombine, work.rows)) return Step::llSlotCombine;
  }
  const bool coded = work.step == Step::combineCoded && codesInSlots(p);
  if (coded || (rowOf(work.step).lands && landsPlainly(p))) {
    const Step plain = coded ? Step::llSlotCoded : plainCombineStep(p);
    if (arriving <= rowsForPlainStep(plain, work, blocksOf(plain, arriving))) return plain;
  }
  return work.step;
}

}  // namespace

CombineCall::CombineCall(Handle& handle, const CombineRequest& asked)
    : handle_(handle),
      asked_(asked),
      args_(asked.args),
      tokens_(handle.tokens()),
      operation_{OperationKind::combine,
                 combineStep(handle.view(), handle.backend().landingCombines(), asked.args.wire != moeWireRow),
                 handle.params(), (asked.args.flags & moeSendOnly) != 0} {
  if (operation_.sendOnly) operation_.params.phases = kSendPhase;
}

Operation& CombineCall::operation() {
  handle_.checkOutstanding(OperationKind::combine, "moeCombine");
  check();
  takeArguments();
  handle_.counters().count(OperationKind::combine, {nullptr, args_.cumulativeWaitNs}, &operation_.params);
  planCombine(handle_, {args_.sms, asked_.ready.completeSms, args_.wire != moeWireRow}, &operation_);
  return operation_;
}

void describeRows(const moeCombineArgs_t& args, bool grads, CombineArgs* out) {
  out->rowType = args.rowType;
  out->rowBytes = static_cast<std::uint32_t>(args.hidden * elementBytes(args.rowType));
  out->wire = args.wire;
  out->elements = args.hidden;
  out->wireBytes = args.wire == moeWireRow ? out->rowBytes : WireRow{args.wire, args.hidden}.bytes();
  out->grads = grads ? 1 : 0;
  out->terms = packCombineTerms(out->rowBytes, out->rowType, grads, out->wire);
}

void CombineCall::takeArguments() {
  CombineArgs out{};
  describeRows(args_, asked_.carriesGrads(), &out);
  out.rows = bytesOf(args_.rows);
  out.tokens = tokens_;
  out.weighted = args_.weights == moeWeightsApply ? 1 : 0;
  out.topkWeights = args_.topkWeights;
  out.out = static_cast<std::uint8_t*>(args_.out);
  out.bias0 = bytesOf(args_.bias0);
  out.bias1 = bytesOf(args_.bias1);
  out.weightGrads = asked_.grads.weightGrads;
  out.outWeightGrads = asked_.grads.outWeightGrads;
  out.ready = readyWords(handle_, asked_.ready);
  operation_.params.combine = out;
  placeRows();
}

// Chooses what peers read: the caller's rows in place if possible, otherwise rows that are prepared for them.
void CombineCall::placeRows() {
  CombineArgs& out = operation_.params.combine;
  const HandleShape& shape = handle_.shape();
  // Steps check the number of rows only where it may be too small.
  out.held = args_.rows != nullptr ? handle_.comm().windowRoom(args_.rows, out.rowBytes) : 0;
  if (out.held >= layoutRowsMax(shape)) out.held = kAnyRows;
  if (handle_.lowLatency()) {
    const bool inSlots = shape.layout == Layout::rankMajor && args_.rows != nullptr;
    out.inPlace = inSlots && args_.rows == handle_.slots().combineRows ? 1 : 0;
    return;
  }
  const Room& room = handle_.room();
  const bool makes = handle_.rowsPerExpert() || args_.wire != moeWireRow;
  const std::int64_t at = makes ? -1 : handle_.windowOffset(args_.rows, 0, "args.rows");
  out.inPlace = at >= 0 ? 1 : 0;
  out.capacity = room.shape.stagingRows;
  if (at >= 0) {
    out.rowsOffset = static_cast<std::uint64_t>(at);
  } else {
    const int area = args_.rows != nullptr ? requireStaging(room, "moeCombine", "args.rows") : 0;
    out.rowsOffset = stagingAt(room.shape, room.view.at, area).rows;
  }
}

void planCombine(const Handle& handle, const CombinePlan& plan, Operation* operation) {
  CombineArgs& a = operation->params.combine;
  const Backend& backend = handle.backend();
  const int tokens = handle.tokens(), arriving = std::max(tokens, handle.arrivingRowsGuess(tokens));
  if (!handle.lowLatency() && !handle.view().hasRails()) {
    if (goesAtOnce(handle, a, arriving)) {
      operation->step = combineStep(handle.view(), backend.landingCombines(), plan.coded, true);
    }
    a.ownRows = readsOwnRows(handle, *operation) ? 1 : 0;
  }
  const std::uint32_t bytes = plan.coded ? static_cast<std::uint32_t>(a.elements) : a.rowBytes;
  Workload work = workloadOf(handle, operation->step, {tokens, plan.sms, bytes, a.wireBytes, onlyMoves(handle, a)});
  work.waitsForRows = a.ready.words != nullptr;
  work.wholeRows = WireRow{a.wire, a.elements}.hasFactor();
  operation->step = work.step = fasterStep(backend, operation->params, work, arriving);
  const StepRow row = rowOf(work.step);
  if (row.family == StepFamily::plain && (row.lands || row.codesPlainly())) work.rows = arriving;
  operation->shape = operation->completing = backend.shapeFor(work);
  if (plan.completeSms > 0) {
    work.sms = plan.completeSms;
    work.waitsForRows = false;  // the first part has waited for them
    a.leaves = a.ready.words != nullptr ? 1 : 0;
    operation->completing = backend.shapeFor(work);
  }
  const auto parts = [&](const LaunchShape& shape, int rows) {
    const Parts cut = backend.partsFor(shape, rows, bytes);
    return plan.coded ? wireParts(cut, a) : cut;
  };
  // The warps share the rows of one wave.
  const int waves = row.spread == Spread::once ? 1 : handle.view().waves;
  a.parts = parts(operation->completing, (tokens + waves - 1) / waves);
  a.arriving = parts(operation->shape, (handle.arrivingRowsGuess(tokens) + waves - 1) / waves);
}

}  // namespace moe
