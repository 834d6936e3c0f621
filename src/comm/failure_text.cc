#include "comm/failure_text.h"

#include <fmt/format.h>

namespace moe {
namespace {

// What a step was waiting for, as in "rank 3 did not send its counts".
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
    case Phase::ownWarps:
      return "finish its own part";
    case Phase::count:
      break;
  }
  return "do its part";
}

}  // namespace

FailureText describeFailure(const Failure& f, int rank, int timeoutMs) {
  switch (f.fault) {
    case Fault::timeout:
      if (f.phase == Phase::puts) {
        return {moeTimeout,
                fmt::format("rank {}: what it puts to rank {} was not carried within {} ms", rank, f.peer, timeoutMs),
                f.peer};
      }
      if (f.phase == Phase::ownWarps) {
        return {moeTimeout, fmt::format("rank {}: its own warps did not finish within {} ms", rank, timeoutMs), rank};
      }
      return {moeTimeout,
              fmt::format("rank {}: rank {} did not {} within {} ms (operation {}, it is at {})", rank, f.peer,
                          missing(f.phase), timeoutMs, f.expected, f.actual),
              f.peer};
    case Fault::left:
      return {moeRemoteError, fmt::format("rank {}: rank {} has left and did not {} (operation {}, it is at {})", rank,
                                          f.peer, missing(f.phase), f.expected, f.actual)};
    case Fault::badIndex:
      return {moeInvalidArgument, fmt::format("rank {}: moeRoute: topkIdx[token {}][{}] is {}, not -1..{}", rank,
                                              f.index >> 8, f.index & 0xff, f.actual, f.expected - 1)};
    case Fault::twice:
      return {moeInvalidArgument,
              fmt::format("rank {}: moeRoute: topkIdx[token {}][{}] is {}, which an earlier entry of "
                          "the token names already",
                          rank, f.index >> 8, f.index & 0xff, f.actual)};
    case Fault::capacity:
      if (f.phase == Phase::combineRows) {
        return {moeInvalidArgument,
                fmt::format("rank {}: moeCombine: the staging area of rank {} holds {} rows (0: args.rows is NULL) but "
                            "{} had arrived there",
                            rank, f.peer, f.expected, f.actual)};
      }
      return {moeInvalidArgument, fmt::format("rank {}: moeDispatch: the output of rank {} holds {} rows but {} arrive",
                                              rank, f.peer, f.expected, f.actual)};
    case Fault::disagreement:
      return {moeInvalidUsage,
              fmt::format("rank {}: rank {} called with a handle or row size that differs from this rank's (experts, "
                          "topk, layout, mode, tokensMax, alignment, row and side bytes must agree)",
                          rank, f.peer)};
    case Fault::none:
      break;
  }
  return {moeInternalError, fmt::format("rank {}: a step failed without saying why", rank)};
}

}  // namespace moe
