// The steps that a backend can launch. A table has one row for each step, with all of its properties but the code.
// The functions below choose the step of an operation. A new step needs its name, its row, and its code
// (device/kernels).
#pragma once

#include <algorithm>
#include <initializer_list>
#include <iterator>

#include "device/view/views.h"

namespace moe {

enum class Step {
  route,
  htDispatch,
  htDispatchWaves,
  htDispatchRails,
  htCast,
  htCastWaves,
  htCastRails,
  llDispatch,
  llRouteDispatch,
  llCombine,
  combine,
  combineWaves,
  combineRails,
  llCombineCoded,
  combineCoded,
  combineWavesCoded,
  combineRailsCoded,
  llSlotDispatch,
  llPlacedDispatch,
  llPlacedMore,
  llPlacedFp8,
  llPlacedCast,
  llSlotCombine,
  llPlacedCombine,
  llPlacedWeighted,
  llWeightsCombine,
  llSlotCoded,
  llPlacedCoded,
  describe,
  tally
};

// `report`: a step about a route or an operation that is over. It reaches no other rank and waits for none.
enum class StepKind { route, dispatch, combine, report };
// How rows are handed over: all at once, in waves, or in waves over rails.
enum class Spread { once, waves, rails };
// Steps whose code is compiled together. `cast`: dispatches of rows that are cast or have payloads; `codedCombine`:
// combines whose rows travel in a wire format; `plain`: plain LL steps, whose warps are blocks and which most decoders
// run. These are separate steps, so that other steps carry nothing of them.
enum class StepFamily { route, htDispatch, cast, ll, combine, codedCombine, plain };
// The kernels of a step on a GPU: for one domain and for several, and those with bulk copies.
enum StepKernels : int { kNear = 1, kFar = 2, kBulk = 4, kFarBulk = 8 };

struct StepRow {
  Step step;
  const char* name;
  StepKind kind;
  StepFamily family;
  Spread spread;
  bool lands;    // a combine whose rows land at their owners
  int kernels;   // StepKernels
  int warps;     // most warps of a block of its plain kernels; the more warps, the fewer registers each has
  int farWarps;  // the same for the kernel for several domains; 0: there is none

  MOE_HOST_DEVICE constexpr bool has(StepKernels kernel) const { return (kernels & kernel) != 0; }
  MOE_HOST_DEVICE constexpr bool combines() const { return kind == StepKind::combine; }
  MOE_HOST_DEVICE constexpr bool coded() const {
    return family == StepFamily::cast || family == StepFamily::codedCombine;
  }
  MOE_HOST_DEVICE constexpr bool waits() const { return kind != StepKind::report; }
  // Steps that compute rather than move rows.
  MOE_HOST_DEVICE constexpr bool computes() const { return kind == StepKind::route || kind == StepKind::report; }
  // On a GPU each of their warps is a whole block.
  MOE_HOST_DEVICE constexpr bool takesBlocks() const { return computes() || family == StepFamily::plain; }
  // LL dispatches with the route inside. The first one serves every handle that can have its route inside; the others
  // serve plain dispatches, which most decoders run.
  MOE_HOST_DEVICE constexpr bool routes() const {
    return step == Step::llRouteDispatch || (kind == StepKind::dispatch && family == StepFamily::plain);
  }
  // Plain dispatches of rows that are cast.
  MOE_HOST_DEVICE constexpr bool castsPlainly() const {
    return step == Step::llPlacedFp8 || step == Step::llPlacedCast;
  }
  // Plain dispatches that bring rows to their places.
  MOE_HOST_DEVICE constexpr bool places() const {
    return step == Step::llPlacedDispatch || step == Step::llPlacedMore || castsPlainly();
  }
  // The plain combines of rows in a wire format.
  MOE_HOST_DEVICE constexpr bool codesPlainly() const {
    return step == Step::llSlotCoded || step == Step::llPlacedCoded;
  }
  // Whether there is a kernel for one domain and rows of bfloat16 in each wire format, and one for rows of other types.
  MOE_HOST_DEVICE constexpr bool hasFormats() const {
    return codesPlainly() || step == Step::combineCoded || step == Step::combineWavesCoded;
  }
  // Whether there is a kernel for one domain and rows of bfloat16, and one for rows of other types.
  MOE_HOST_DEVICE constexpr bool hasTypes() const {
    return hasFormats() || (family == StepFamily::plain && (combines() || castsPlainly()));
  }
  // Whether it may run beside the route that it follows.
  MOE_HOST_DEVICE constexpr bool runsBeside() const {
    return kind == StepKind::dispatch && (family == StepFamily::htDispatch || family == StepFamily::cast) &&
           spread != Spread::rails;
  }
  // Whether some warps may move rows, and others describe them.
  MOE_HOST_DEVICE constexpr bool isDivided() const { return step == Step::htDispatch; }
};

inline constexpr std::size_t kStepCount = static_cast<std::size_t>(Step::tally) + 1;
struct StepTable {
  StepRow rows[kStepCount];
};

// This is a function, because device code cannot read a table that is a constant of the host.
// clang-format off
MOE_HOST_DEVICE constexpr StepTable stepTable() {
  using Kind = StepKind;
  using Family = StepFamily;
  return {{
      // step                   name                 kind            family                spread         lands  kernels               warps
      {Step::route,             "route",             Kind::route,    Family::route,        Spread::once,  false, kNear | kFar,         16,   16},
      {Step::htDispatch,        "htDispatch",        Kind::dispatch, Family::htDispatch,   Spread::once,  false, kNear | kBulk,        16,   0},
      {Step::htDispatchWaves,   "htDispatchWaves",   Kind::dispatch, Family::htDispatch,   Spread::waves, false, kNear | kBulk,        8,    0},
      {Step::htDispatchRails,   "htDispatchRails",   Kind::dispatch, Family::htDispatch,   Spread::rails, false, kFar | kFarBulk,      8,    8},
      {Step::htCast,            "htCast",            Kind::dispatch, Family::cast,         Spread::once,  false, kNear,                16,   0},
      {Step::htCastWaves,       "htCastWaves",       Kind::dispatch, Family::cast,         Spread::waves, false, kNear | kBulk,        8,    0},
      {Step::htCastRails,       "htCastRails",       Kind::dispatch, Family::cast,         Spread::rails, false, kFar,                 8,    8},
      {Step::llDispatch,        "llDispatch",        Kind::dispatch, Family::ll,           Spread::once,  false, kNear | kFar,         16,   16},
      {Step::llRouteDispatch,   "llRouteDispatch",   Kind::dispatch, Family::ll,           Spread::once,  false, kNear | kFar,         16,   12},
      {Step::llCombine,         "llCombine",         Kind::combine,  Family::ll,           Spread::once,  true,  kNear | kFar,         16,   16},
      {Step::combine,           "combine",           Kind::combine,  Family::combine,      Spread::once,  false, kNear | kFar | kBulk, 24,   16},
      {Step::combineWaves,      "combineWaves",      Kind::combine,  Family::combine,      Spread::waves, false, kNear | kBulk,        16,   0},
      {Step::combineRails,      "combineRails",      Kind::combine,  Family::combine,      Spread::rails, false, kFar,                 16,   16},
      {Step::llCombineCoded,    "llCombineCoded",    Kind::combine,  Family::codedCombine, Spread::once,  true,  kNear | kFar,         16,   16},
      {Step::combineCoded,      "combineCoded",      Kind::combine,  Family::codedCombine, Spread::once,  false, kNear | kFar,         16,   12},
      {Step::combineWavesCoded, "combineWavesCoded", Kind::combine,  Family::codedCombine, Spread::waves, false, kNear,                16,   0},
      {Step::combineRailsCoded, "combineRailsCoded", Kind::combine,  Family::codedCombine, Spread::rails, false, kFar,                 12,   12},
      {Step::llSlotDispatch,    "llSlotDispatch",    Kind::dispatch, Family::plain,        Spread::once,  false, kNear,                8,    0},
      {Step::llPlacedDispatch,  "llPlacedDispatch",  Kind::dispatch, Family::plain,        Spread::once,  false, kNear,                16,   0},
      {Step::llPlacedMore,      "llPlacedMore",      Kind::dispatch, Family::plain,        Spread::once,  false, kNear,                16,   0},
      {Step::llPlacedFp8,       "llPlacedFp8",       Kind::dispatch, Family::plain,        Spread::once,  false, kNear,                16,   0},
      {Step::llPlacedCast,      "llPlacedCast",      Kind::dispatch, Family::plain,        Spread::once,  false, kNear,                16,   0},
      {Step::llSlotCombine,     "llSlotCombine",     Kind::combine,  Family::plain,        Spread::once,  false, kNear,                8,    0},
      {Step::llPlacedCombine,   "llPlacedCombine",   Kind::combine,  Family::plain,        Spread::once,  true,  kNear,                16,   0},
      {Step::llPlacedWeighted,  "llPlacedWeighted",  Kind::combine,  Family::plain,        Spread::once,  true,  kNear,                16,   0},
      {Step::llWeightsCombine,  "llWeightsCombine",  Kind::combine,  Family::plain,        Spread::once,  true,  kNear,                16,   0},
      {Step::llSlotCoded,       "llSlotCoded",       Kind::combine,  Family::plain,        Spread::once,  false, kNear,                16,   0},
      {Step::llPlacedCoded,     "llPlacedCoded",     Kind::combine,  Family::plain,        Spread::once,  true,  kNear,                16,   0},
      {Step::describe,          "describe",          Kind::report,   Family::route,        Spread::once,  false, kNear,                16,   0},
      {Step::tally,             "tally",             Kind::report,   Family::route,        Spread::once,  false, kNear,                16,   0},
  }};
}
// clang-format on

inline constexpr StepTable kSteps = stepTable();

// On the host a table of its own would be copied in each call whose step is known only at run time.
MOE_HOST_DEVICE constexpr StepRow rowOf(Step step) {
#ifdef __CUDA_ARCH__
  constexpr StepTable kSteps = stepTable();
#endif
  return kSteps.rows[static_cast<std::size_t>(step)];
}

// True for dispatches with local work on their rows, or over rails; the same on all ranks. Other dispatches have one
// wave. Whether a step has waves is a compile-time constant, so that one wave costs nothing.
MOE_HOST_DEVICE bool dispatchesInWaves(const HandleView& h) {
  return h.lowLatency == 0 && (expertRows(h) || h.domains > 1);
}

// True for combines whose expert side makes new rows, which may therefore land at their owners. The same on all ranks.
MOE_HOST_DEVICE bool combineLands(const HandleView& h) {
  return h.lowLatency != 0 && h.layout != Layout::rankMajor;
}

inline Spread spreadOf(const HandleView& h) {
  return h.hasRails() ? Spread::rails : dispatchesInWaves(h) ? Spread::waves : Spread::once;
}

// `casts`: rows are cast on their way, or have payloads.
inline Step dispatchStep(const HandleView& h, bool casts) {
  if (h.lowLatency != 0) return Step::llDispatch;
  const StepFamily family = casts ? StepFamily::cast : StepFamily::htDispatch;
  const Spread spread = spreadOf(h);
  const auto fits = [&](const StepRow& row) { return row.family == family && row.spread == spread; };
  return std::find_if(std::begin(kSteps.rows), std::end(kSteps.rows), fits)->step;
}
// `landing`: whether rows land where they can; the same on all ranks of a communicator. `coded`: rows travel in a wire
// format. `atOnce`: HT rows in one domain go at once rather than in waves. Ranks need not choose the same.
inline Step combineStep(const HandleView& h, bool landing, bool coded = false, bool atOnce = false) {
  const bool lands = landing && combineLands(h), once = h.lowLatency != 0 || atOnce;
  const Spread spread = h.hasRails() ? Spread::rails : once ? Spread::once : Spread::waves;
  const auto fits = [&](const StepRow& row) {
    return row.combines() && row.coded() == coded && row.lands == lands && row.spread == spread &&
           row.family != StepFamily::plain;
  };
  return std::find_if(std::begin(kSteps.rows), std::end(kSteps.rows), fits)->step;
}

inline constexpr int kWhole = kSendPhase | kReceivePhase;

// Whether a dispatch may run beside the route that it follows. It tells its peers where its rows shall lie before it
// knows the counts. Nobody measures its waits, and nobody reads its counts while it runs.
inline bool mayRunBeside(Step step, const StepParams& p) {
  const DispatchArgs& d = p.dispatch;
  return rowOf(step).runsBeside() && p.comm.waits == nullptr && p.handle.arrivals == 0 &&
         (d.staged != 0 || gridOfExperts(d) == nullptr);
}

// Whether a dispatch that routes is in one domain and has nothing beside its rows but the scales of their cast. Then a
// step whose warps are blocks may do it, whole or one of its phases. Ranks need not choose the same step, because both
// send the same metadata.
MOE_HOST_DEVICE bool routesPlainly(const StepParams& p) {
  const HandleView& h = p.handle;
  const DispatchArgs& d = p.dispatch;
  return d.sideBytes == 0 && d.payloads.count == 0 && d.padding == 0 &&
         (d.outExpertOffsets == nullptr || expertRows(h)) && d.cast.outBlockOffsets == nullptr &&
         h.placement == nullptr && h.arrivals == 0 && !p.comm.split() && p.comm.nranks <= kSlotRanksMax;
}
// Whether such a dispatch merges, or fills arrays for the caller beside the rows' descriptions.
MOE_HOST_DEVICE bool asksForMore(const StepParams& p) {
  return p.handle.merges != 0 || p.describe.layoutRange != nullptr || p.describe.rowsPerExpert != nullptr ||
         p.tally.callRows != nullptr;
}
// The types of casts to e4m3 whose scales are for 128 elements. DeepEP has these.
inline constexpr int kCastTypeBits = 15, kFp8CastLast = 3;
// Whether rows are cast to one of them, without other scales and weights.
MOE_HOST_DEVICE bool castsToFp8(const CastArgs& cast) {
  return (cast.type & kCastTypeBits) <= kFp8CastLast && cast.inputScale == nullptr && cast.rowWeights == nullptr;
}
// The step of such a dispatch. RANK_MAJOR rows may stay in their slots.
MOE_HOST_DEVICE Step plainDispatchStep(const StepParams& p) {
  if (p.dispatch.cast.type != 0) return castsToFp8(p.dispatch.cast) ? Step::llPlacedFp8 : Step::llPlacedCast;
  if (asksForMore(p)) return Step::llPlacedMore;
  return p.handle.layout == Layout::rankMajor && p.dispatch.outRows == nullptr ? Step::llSlotDispatch
                                                                               : Step::llPlacedDispatch;
}
// Whether a dispatch adds to TallyArgs::callRows by itself, if it notes no waits.
MOE_HOST_DEVICE bool countsArrivals(Step step) {
  return step == Step::llPlacedMore || rowOf(step).castsPlainly();
}
// Whether a dispatch fills the arrays of DescribeArgs by itself, so that no step has to follow it.
MOE_HOST_DEVICE bool describesArrivals(Step step, const DescribeArgs& a) {
  return countsArrivals(step) && a.rowExperts == nullptr;
}
// Whether Step::llSlotCombine may replace Step::combine: owners read rows in their slots, with nothing beside them.
MOE_HOST_DEVICE bool combinesFromSlots(const StepParams& p) {
  const CombineArgs& a = p.combine;
  return p.phases == kWhole && p.handle.lowLatency != 0 && p.handle.layout == Layout::rankMajor && a.inPlace != 0 &&
         a.grads == 0 && a.wire == 0 && a.ready.words == nullptr && p.handle.weighted == 0 && !p.comm.split() &&
         p.comm.nranks <= kSlotRanksMax;
}

// Whether Step::llSlotCoded may replace Step::combineCoded: RANK_MAJOR rows, with nothing beside them.
MOE_HOST_DEVICE bool codesInSlots(const StepParams& p) {
  const CombineArgs& a = p.combine;
  return p.phases == kWhole && p.handle.lowLatency != 0 && p.handle.layout == Layout::rankMajor && a.wire != 0 &&
         a.grads == 0 && a.ready.words == nullptr && p.handle.weighted == 0 && !p.comm.split() &&
         p.comm.nranks <= kSlotRanksMax;
}

// Whether plainCombineStep() may replace Step::llCombine or Step::llCombineCoded: rows land at their owners, with
// nothing beside them but weights. Rows in a wire format go in one phase.
MOE_HOST_DEVICE bool landsPlainly(const StepParams& p) {
  const CombineArgs& a = p.combine;
  const bool weighs = p.handle.weighted == 0 || a.weighted != 0;
  return combineLands(p.handle) && a.grads == 0 && a.ready.words == nullptr && a.leaves == 0 && weighs &&
         (a.wire == 0 || (p.phases == kWhole && p.handle.weighted == 0)) && !p.comm.split() &&
         p.comm.nranks <= kSlotRanksMax;
}
// The step of such a combine.
MOE_HOST_DEVICE Step plainCombineStep(const StepParams& p) {
  if (p.combine.wire != 0) return Step::llPlacedCoded;
  if (p.handle.weighted != 0) return Step::llWeightsCombine;
  return p.combine.weighted != 0 ? Step::llPlacedWeighted : Step::llPlacedCombine;
}

// True if each step has its row at its place, and each operation has a step.
constexpr bool tableIsWhole() {
  for (std::size_t i = 0; i < kStepCount; ++i) {
    if (kSteps.rows[i].step != static_cast<Step>(i)) return false;
  }
  for (const bool coded : {false, true}) {
    for (const Spread spread : {Spread::once, Spread::waves, Spread::rails}) {
      int dispatches = 0, combines = 0;
      for (const StepRow& row : kSteps.rows) {
        if (row.spread != spread || row.coded() != coded || row.lands || row.family == StepFamily::ll) continue;
        if (row.family == StepFamily::plain) continue;
        dispatches += row.kind == StepKind::dispatch ? 1 : 0;
        combines += row.combines() ? 1 : 0;
      }
      if (dispatches != 1 || combines != 1) return false;
    }
  }
  return true;
}
static_assert(tableIsWhole());

}  // namespace moe
