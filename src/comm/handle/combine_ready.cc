#include <fmt/format.h>

#include <bit>

#include "comm/handle/argument_checks.h"
#include "comm/handle/combine_call.h"

namespace moe {

void checkReady(const Handle& handle, const moeCombineArgs_t& args) {
  if (args.ready == nullptr) return;
  requireAligned(args.ready, "args.ready", alignof(std::uint32_t));
  if (!handle.rowsPerExpert()) {
    throw Error(moeInvalidArgument,
                fmt::format("args.ready is {}, but only layouts with a row per expert (EXPERT_MAJOR, "
                            "EXPERT_MAJOR_PADDED) wait for their rows",
                            fmt::ptr(args.ready)));
  }
  if (args.readyRows != 0 && args.readyRows != 64 && args.readyRows != 128) {
    throw Error(moeInvalidArgument, fmt::format("args.readyRows is {}, must be 0, 64 or 128", args.readyRows));
  }
  const bool whole = args.readyRows == 0 || handle.shape().layout == Layout::expertMajorPadded ||
                     handle.shape().alignment % args.readyRows == 0;
  if (whole) return;
  throw Error(moeInvalidArgument,
              fmt::format("args.readyRows is {}, but config.expertAlignment is {}, not a multiple of "
                          "it, so that a block would have rows of two experts",
                          args.readyRows, handle.shape().alignment));
}

ReadyWords readyWords(const Handle& handle, const moeCombineArgs_t& args) {
  if (args.ready == nullptr) return {};
  if (args.readyRows == 0) return {args.ready, args.readyValue, kShiftsRowsAway, 1, 0};
  const int shift = std::countr_zero(static_cast<unsigned>(args.readyRows));
  if (handle.shape().layout != Layout::expertMajorPadded) return {args.ready, args.readyValue, shift, 0, 0};
  const int places = handle.shape().map.nranks * handle.view().tokensMax;
  return {args.ready, args.readyValue, shift, (places + args.readyRows - 1) / args.readyRows, places};
}

std::int64_t readyWordCount(const Handle& handle, const moeCombineArgs_t& args) {
  const std::int64_t each = readyWords(handle, args).wordsEach;
  return each == 0 ? 1 : each * handle.localExperts();
}

}  // namespace moe
