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
// takes some microseconds. These are times in us, at once and in waves, with the rows that arrive at a rank
// (EXPERT_MAJOR with 4096: in waves as they were before decision 0135):
//
//                     1024      2048       4096       8192                      1024     2048     4096       8192
//   EXPERT_MAJOR     69 / 66  129 / 117  225 / 195     -      FLAT, fp8        28 / 31  45 / 45  73 / 74  129 / 118
//   EXPERT_MAJOR fp8    -      81 /  80  142 / 134  257 / 227  FLAT, copied       -     73 / 72    -        - / 208
//
// Codes of NVFP4 and LogFMT-10 take so many instructions that waves only mix them in the instruction cache: 133 / 162
// and 251 / 286 with 8192 rows of FLAT (2 x H200, 2026-11-30 and 12-01). Rows in place are not made. On a CPU, warps
// that make rows would take time from those that take them.
bool goesAtOnce(const Handle& handle, const CombineArgs& a, int arriving) {
  constexpr int kExpertRows = 768, kRows = 3072, kCodedRows = 5120;
  const bool codes = a.wire != moeWireRow, perExpert = handle.rowsPerExpert();
  if (a.ready.words != nullptr) return false;
  if (a.inPlace != 0 || a.wire == moeWireNvfp4 || a.wire == moeWireLogfmt10) return true;
  if (handle.backend().kind() == moeBackendHost) return true;
  if (perExpert) return arriving <= (codes ? kRows : kExpertRows);
  return arriving <= (codes ? kCodedRows : kRows);
}

// How the warps of a block divide a combine in waves, in 48ths of them: those that make rows need not be faster than
// the wire. With 4096 tokens on 2 x H200, these shares took (us, 2026-12-01):
//
//   EXPERT_MAJOR fp8          11, 12, 13 of 16: 234, 227, 246       FLAT, fp8      3, 4, 5, 6 of 16: 122, 119, 118, 120
//   EXPERT_MAJOR              8, 9, 11 of 12: 364, 354, 523         FLAT, copied   4, 5, 6, 7 of 12: 214, 208, 209, 213
//
// They help to take the last wave only: with two, FLAT in fp8 took 125.
Makers makersOf(const Handle& handle, const Operation& operation) {
  constexpr int kWhole = 48, kSums = 36, kCopies = 20, kCodes = 12;
  const int warps = operation.shape.warpsPerBlock;
  if (operation.sendOnly || rowOf(operation.step).spread != Spread::waves || warps < 2) return {};
  const int share = handle.rowsPerExpert() ? kSums : operation.params.combine.wire == moeWireRow ? kCopies : kCodes;
  const int makers = std::clamp(warps * share / kWhole, 1, warps - 1);
  return {static_cast<std::int16_t>(makers), static_cast<std::int16_t>(handle.view().waves - 1)};
}

// Whether the sums of an HT combine read this rank's rows where they are given, so that none are made of them. A second
// part may run when the caller's rows are gone. Coded rows that are read so are coded in the sums, for which few
// kernels have room.
bool readsOwnRows(const Handle& handle, const Operation& operation) {
  const CombineArgs& a = operation.params.combine;
  if (operation.sendOnly || handle.rowsPerExpert() || a.inPlace != 0 || a.rows == nullptr) return false;
  return a.wire == moeWireRow || (a.rowType == moeRowBf16 && a.wire != moeWireLogfmt10);
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

void describeRows(const moeCombineArgs_t& args, bool grads, bool split, CombineArgs* out) {
  constexpr int kLine = 128;  // what a GPU reads of a peer at once
  out->rowType = args.rowType;
  out->rowBytes = static_cast<std::uint32_t>(args.hidden * elementBytes(args.rowType));
  out->wire = args.wire;
  out->elements = args.hidden;
  out->wireBytes = args.wire == moeWireRow ? out->rowBytes : WireRow{args.wire, args.hidden}.bytes();
  if (args.wire != moeWireRow && !split) out->wireBytes = static_cast<std::uint32_t>(roundUp(out->wireBytes, kLine));
  out->grads = grads ? 1 : 0;
  out->terms = packCombineTerms(out->rowBytes, out->rowType, grads, out->wire);
}

void CombineCall::takeArguments() {
  CombineArgs out{};
  describeRows(args_, asked_.carriesGrads(), handle_.room().view.split(), &out);
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
  a.makers = makersOf(handle, *operation);
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
