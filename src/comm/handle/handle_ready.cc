// The words that a combine waits for before it reads rows: checks them, and says where each row has its word.
#include <fmt/format.h>

#include <bit>

#include "comm/handle/argument_checks.h"
#include "comm/handle/handle.h"

namespace moe {

void Handle::checkReady(const moeCombineArgs_t& args) const {
  if (args.ready == nullptr) return;
  requireAligned(args.ready, "args.ready", alignof(std::uint32_t));
  if (!rowsPerExpert()) {
    throw Error(moeInvalidArgument,
                fmt::format("args.ready is {}, but only layouts with a row per expert (EXPERT_MAJOR, "
                            "EXPERT_MAJOR_PADDED) wait for their rows",
                            fmt::ptr(args.ready)));
  }
  if (args.readyRows != 0 && args.readyRows != 64 && args.readyRows != 128) {
    throw Error(moeInvalidArgument, fmt::format("args.readyRows is {}, must be 0, 64 or 128", args.readyRows));
  }
  const bool whole =
      args.readyRows == 0 || shape_.layout == Layout::expertMajorPadded || shape_.alignment % args.readyRows == 0;
  if (whole) return;
  throw Error(moeInvalidArgument,
              fmt::format("args.readyRows is {}, but config.expertAlignment is {}, not a multiple of "
                          "it, so that a block would have rows of two experts",
                          args.readyRows, shape_.alignment));
}

ReadyWords Handle::readyWords(const moeCombineArgs_t& args) const {
  if (args.ready == nullptr) return {};
  if (args.readyRows == 0) return {args.ready, args.readyValue, kShiftsRowsAway, 1, 0};
  const int shift = std::countr_zero(static_cast<unsigned>(args.readyRows));
  if (shape_.layout != Layout::expertMajorPadded) return {args.ready, args.readyValue, shift, 0, 0};
  const int places = shape_.map.nranks * view_.tokensMax;
  return {args.ready, args.readyValue, shift, (places + args.readyRows - 1) / args.readyRows, places};
}

// Only the device knows how many blocks EXPERT_MAJOR has: of those one word is checked.
std::int64_t Handle::readyWordCount(const moeCombineArgs_t& args) const {
  const std::int64_t each = readyWords(args).wordsEach;
  return each == 0 ? 1 : each * shape_.map.count(room_.view.rank);
}

}  // namespace moe
