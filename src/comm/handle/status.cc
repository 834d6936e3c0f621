// Why a handle delivers nothing, for the host.
#include <array>
#include <atomic>
#include <bit>
#include <optional>

#include "comm/handle/handle.h"
#include "comm/recorder/failure_text.h"
#include "comm/recorder/refused.h"

namespace moe {

static_assert(kBadArgument == moeInvalidArgument && kBadUsage == moeInvalidUsage, "fault words are results");

// The record that the steps so far have left. A running step may be changing it, so the copy is good only if the
// record's number is the same before and after. Acquiring loads, word by word, keep the second look after the copy. A
// fence would do so too, but ThreadSanitizer knows no fences.
std::optional<Failure> Handle::fault() const {
  const std::atomic_ref ready(view_.fault->ready);
  auto* from = reinterpret_cast<std::uint64_t*>(view_.fault);
  std::array<std::uint64_t, sizeof(Failure) / sizeof(std::uint64_t)> words;
  for (;;) {
    const std::uint64_t before = ready.load(std::memory_order_acquire);
    if (before == 0) return std::nullopt;
    for (std::size_t i = 0; i < words.size(); ++i) words[i] = std::atomic_ref(from[i]).load(std::memory_order_acquire);
    if (ready.load(std::memory_order_relaxed) == before) return std::bit_cast<Failure>(words);
  }
}

moeHandleStatus_t Handle::status() {
  moeHandleStatus_t status = MOE_HANDLE_STATUS_INITIALIZER;
  status.rank = -1;
  sentence_.clear();
  if (std::optional<Failure> why = fault()) {
    if (localOnly_) why->peer = comm_.rank();  // the only rank that the step knows
    const FailureText text = describeFailure(*why, comm_.rank(), comm_.timeout().count());
    status.result = text.result;
    const int refusing = refusingRank(*why, comm_.rank());
    status.rank = refusing < 0 ? why->peer : refusing;
    sentence_ = text.sentence;
  }
  status.sentence = sentence_.c_str();
  return status;
}

}  // namespace moe
