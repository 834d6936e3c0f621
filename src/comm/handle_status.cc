// Why a handle delivers nothing, for the host.
#include <atomic>
#include <optional>

#include "comm/failure_text.h"
#include "comm/handle.h"

namespace moe {
namespace {

static_assert(kBadArgument == moeInvalidArgument && kBadUsage == moeInvalidUsage, "fault words are results");

// What the steps that have run so far have left. A step that runs may be about to change it: the record is good if its
// number is the same before and after.
std::optional<Failure> readFault(HostCounts* host) {
  const std::atomic_ref ready(host->fault.ready);
  for (;;) {
    const std::uint64_t before = ready.load(std::memory_order_acquire);
    if (before == 0) return std::nullopt;
    const Failure fault = host->fault;
    std::atomic_thread_fence(std::memory_order_acquire);
    if (ready.load(std::memory_order_relaxed) == before) return fault;
  }
}

}  // namespace

moeHandleStatus_t Handle::status() {
  moeHandleStatus_t status = MOE_HANDLE_STATUS_INITIALIZER;
  status.rank = -1;
  sentence_.clear();
  if (const std::optional<Failure> fault = readFault(view_.hostCounts)) {
    const FailureText text = describeFailure(*fault, comm_.rank(), comm_.timeout().count());
    status.result = text.result;
    status.rank = fault->peer;
    sentence_ = text.sentence;
  }
  status.sentence = sentence_.c_str();
  return status;
}

}  // namespace moe
