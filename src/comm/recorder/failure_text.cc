#include "comm/recorder/failure_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>
#include <vector>

#include "comm/recorder/refused.h"
#include "device/view/terms.h"

namespace moe {
namespace {

// The event that a step waited for, as in "rank 3 did not send its counts".
const char* missing(Phase phase) {
  switch (phase) {
    case Phase::none:
      return "do its part";
    case Phase::routeCounts:
      return "send its counts (moeRoute)";
    case Phase::routeHeaders:
      return "send its row headers (moeRoute)";
    case Phase::dispatchOutput:
      return "offer its output (moeDispatch)";
    case Phase::dispatchRows:
      return "send its rows (moeDispatch)";
    case Phase::dispatchSlots:
      return "take the rows of an earlier operation (moeDispatch)";
    case Phase::combineSlots:
      return "sum the rows of an earlier moeCombine";
    case Phase::combineRows:
      return "offer its rows (moeCombine)";
    case Phase::combineWeights:
      return "send its weights (moeCombine)";
    case Phase::combineDone:
      return "sum its tokens (moeCombine)";
    case Phase::dispatchRails:
      return "send its rows over the rail (moeDispatch)";
    case Phase::dispatchRailsFree:
      return "forward the rows of an earlier moeDispatch";
    case Phase::combineRails:
      return "send its sums over the rail (moeCombine)";
    case Phase::combineRailsFree:
      return "take the sums of an earlier moeCombine";
    case Phase::puts:
    case Phase::expertRows:
    case Phase::ownWarps:
      return "finish its own part";
    case Phase::count:
      break;
  }
  return "do its part";
}

const char* callOf(Phase phase) {
  switch (phase) {
    case Phase::routeCounts:
    case Phase::routeHeaders:
      return "moeRoute";
    case Phase::combineSlots:
    case Phase::combineRows:
    case Phase::combineWeights:
    case Phase::combineDone:
    case Phase::combineRails:
    case Phase::combineRailsFree:
      return "moeCombine";
    default:
      return "moeDispatch";
  }
}

std::vector<TermField> dispatchFields() {
  return {dispatch_terms::kCast,    dispatch_terms::kExact,  dispatch_terms::kWeightsOnInput,
          dispatch_terms::kRowType, dispatch_terms::kHidden, dispatch_terms::kSideBytes,
          dispatch_terms::kPayloads};
}

// The fields of the word that differs. A field whose difference explains others comes before them.
std::vector<TermField> fieldsOf(const Failure& f) {
  namespace handle = handle_terms;
  const std::string_view call = callOf(f.phase);
  if (call == "moeRoute") {
    if (f.index == 1) return {handle::kTokensBound, handle::kPlacement};
    if (f.index == 2) return {handle::kAlignment, handle::kPlacementRest};
    if (f.index == 3) return {handle::kRowsBudget};
    return {handle::kExperts,  handle::kTopk,           handle::kLayout,      handle::kMode,
            handle::kArrivals, handle::kCombineWeights, handle::kExpertCounts};
  }
  if (call == "moeCombine") {
    return {combine_terms::kRowType, combine_terms::kWire, combine_terms::kPieces, combine_terms::kGrads};
  }
  return dispatchFields();
}

std::string valueOf(const TermField& field, std::uint64_t word) {
  const std::uint64_t value = field.of(word);
  if (value < field.values.size() && field.values[value] != nullptr) return field.values[value];
  return std::to_string(value);
}

// Uses the terms of moeCommInit, with the lower rank first.
std::string describeDisagreement(const Failure& f, int rank) {
  auto ours = static_cast<std::uint64_t>(f.expected), theirs = static_cast<std::uint64_t>(f.actual);
  const int lower = std::min(rank, f.peer), higher = std::max(rank, f.peer);
  if (f.peer < rank) std::swap(ours, theirs);
  for (const TermField& field : fieldsOf(f)) {
    if (field.of(ours) == field.of(theirs)) continue;
    return fmt::format("rank {}: {}: ranks disagree: {} is {} on rank {} and {} on rank {}", rank, callOf(f.phase),
                       field.name, valueOf(field, ours), lower, valueOf(field, theirs), higher);
  }
  return fmt::format("rank {}: {}: rank {} passed sizes that differ from this rank's", rank, callOf(f.phase), f.peer);
}

FailureText describeTimeout(const Failure& f, int rank, std::int64_t timeoutMs) {
  if (f.phase == Phase::puts) {
    return {moeTimeout,
            fmt::format("rank {}: its writes to rank {} did not complete within {} ms", rank, f.peer, timeoutMs),
            f.peer};
  }
  if (f.phase == Phase::ownWarps) {
    return {moeTimeout, fmt::format("rank {}: its own warps did not finish within {} ms", rank, timeoutMs), rank};
  }
  if (f.phase == Phase::expertRows) {
    return {moeTimeout,
            fmt::format(
                "rank {}: moeCombine: rows of its local expert {} were not ready within {} ms (args.ready.words[{}] "
                "is {}, which has not reached {})",
                rank, f.index >> 32, timeoutMs, f.index & 0xffffffff, f.actual, f.expected),
            rank};
  }
  return {moeTimeout,
          fmt::format("rank {}: rank {} did not {} within {} ms (operation {}, it is at {})", rank, f.peer,
                      missing(f.phase), timeoutMs, f.expected, f.actual),
          f.peer};
}

FailureText describeOther(const Failure& f, int rank, std::int64_t timeoutMs) {
  switch (f.fault) {
    case Fault::timeout:
      return describeTimeout(f, rank, timeoutMs);
    case Fault::left:
      return {moeRemoteError, fmt::format("rank {}: rank {} has left and did not {} (operation {}, it is at {})", rank,
                                          f.peer, missing(f.phase), f.expected, f.actual)};
    case Fault::voided:
      return {moeInvalidUsage,
              fmt::format("rank {}: moeCommRecover has voided the handle's route: call moeRoute", rank)};
    case Fault::badIndex:
      return {moeInvalidArgument, fmt::format("rank {}: moeRoute: topkIdx[token {}][{}] of rank {} is {}, not -1..{}",
                                              rank, f.index >> 8, f.index & 0xff, f.peer, f.actual, f.expected - 1)};
    case Fault::twice:
      return {moeInvalidArgument,
              fmt::format("rank {}: moeRoute: topkIdx[token {}][{}] of rank {} is {}, which an earlier entry of "
                          "the token names already",
                          rank, f.index >> 8, f.index & 0xff, f.peer, f.actual)};
    case Fault::capacity:
      if (f.phase == Phase::combineRows) {
        return {moeInvalidArgument, f.expected == 0
                                        ? fmt::format("rank {}: moeCombine: args.rows of rank {} is NULL or "
                                                      "has no room, but its layout has {} rows",
                                                      rank, f.peer, f.actual)
                                        : fmt::format("rank {}: moeCombine: args.rows of rank {} has room "
                                                      "for {} rows (moeMemAlloc), but its layout has {}",
                                                      rank, f.peer, f.expected, f.actual)};
      }
      return {moeInvalidArgument, fmt::format("rank {}: moeDispatch: the output of rank {} holds {} rows but {} arrive",
                                              rank, f.peer, f.expected, f.actual)};
    case Fault::staging:
      return {moeInvalidArgument,
              fmt::format(
                  "rank {}: {}: config.stagingRows of rank {} is {}, but {} rows {}", rank, callOf(f.phase), f.peer,
                  f.expected, f.actual,
                  f.phase == Phase::combineRows ? "had arrived there" : "arrive for its output outside the window")};
    case Fault::noGrads:
      return {moeInvalidArgument,
              fmt::format(
                  "rank {}: moeCombine: args.grads.weightGrads of rank {} is NULL, but {} rows had arrived there and "
                  "the combine carries gradients",
                  rank, f.peer, f.actual)};
    case Fault::disagreement:
      return {moeInvalidUsage, describeDisagreement(f, rank)};
    case Fault::elsewhere:
      return {f.actual == kBadUsage ? moeInvalidUsage : moeInvalidArgument,
              fmt::format("rank {}: {}: a rank in the domain of rank {} has a fault; a handle's status there names it",
                          rank, callOf(f.phase), f.peer)};
    case Fault::none:
      break;
  }
  return {moeInternalError, fmt::format("rank {}: a step failed without a reason", rank)};
}

}  // namespace

std::string dispatchDifference(std::uint64_t terms, std::uint64_t begun) {
  for (const TermField& field : dispatchFields()) {
    if (field.of(terms) == field.of(begun)) continue;
    return fmt::format("{} is {}, but it was {}", field.name, valueOf(field, terms), valueOf(field, begun));
  }
  return "they differ";
}

FailureText describeFailure(const Failure& f, int rank, std::int64_t timeoutMs) {
  const int refusing = refusingRank(f, rank);
  if (refusing < 0) return describeOther(f, rank, timeoutMs);
  return {static_cast<moeResult_t>(resultOf(f)),
          fmt::format("rank {}: {}: rank {} has refused its arguments; see the error on that rank", rank,
                      f.fault == Fault::badIndex ? "moeRoute" : callOf(f.phase), refusing)};
}

}  // namespace moe
