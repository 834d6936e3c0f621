#include <fmt/format.h>

#include <bit>

#include "comm/handle/call_checks.h"
#include "comm/handle/combine_call.h"

namespace moe {

void checkReady(const Handle& handle, const CombineRequest& asked) {
  const moeReady_t& ready = asked.ready;
  if (ready.words == nullptr) return;
  requireAligned(ready.words, "args.ready.words", alignof(std::uint32_t));
  if (!handle.rowsPerExpert()) {
    refuse(
        fmt::format("args.ready.words is {}, but only layouts with a row per expert (EXPERT_MAJOR, "
                    "EXPERT_MAJOR_PADDED) wait for their rows",
                    fmt::ptr(ready.words)));
  }
  if (ready.blockRows != 0 && ready.blockRows != 64 && ready.blockRows != 128)
    refuse(fmt::format("args.ready.blockRows is {}, must be 0, 64 or 128", ready.blockRows));
  const bool whole = ready.blockRows == 0 || handle.shape().layout == Layout::expertMajorPadded ||
                     handle.shape().alignment % ready.blockRows == 0;
  if (whole) return;
  refuse(
      fmt::format("args.ready.blockRows is {}, but config.expertAlignment is {}, which is not a multiple of it: "
                  "a block could have rows of two experts",
                  ready.blockRows, handle.shape().alignment));
}

ReadyWords readyWords(const Handle& handle, const moeReady_t& ready) {
  if (ready.words == nullptr) return {};
  if (ready.blockRows == 0) return {ready.words, ready.value, kShiftsRowsAway, 1, 0};
  const int shift = std::countr_zero(static_cast<unsigned>(ready.blockRows));
  if (handle.shape().layout != Layout::expertMajorPadded) return {ready.words, ready.value, shift, 0, 0};
  const int places = handle.shape().map.nranks * handle.view().tokensMax;
  return {ready.words, ready.value, shift, (places + ready.blockRows - 1) / ready.blockRows, places};
}

std::int64_t readyWordCount(const Handle& handle, const moeReady_t& ready) {
  const std::int64_t each = readyWords(handle, ready).wordsEach;
  return each == 0 ? 1 : each * handle.localExperts();
}

}  // namespace moe
