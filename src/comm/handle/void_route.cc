// A handle after its communicator has recovered (decision 0122): its route is void, and what awaited moeComplete is
// cancelled.
#include <fmt/format.h>

#include <atomic>
#include <vector>

#include "bootstrap/group/failure.h"
#include "comm/handle/handle.h"
#include "device/view/settled.h"

namespace moe {

void Handle::voidRoute() {
  forgetPending();
  HandleState before;
  static_assert(sizeof before % sizeof(std::uint64_t) == 0);
  backend().readWords(reinterpret_cast<std::uint64_t*>(&before), reinterpret_cast<const std::uint64_t*>(view_.state),
                      sizeof before / sizeof(std::uint64_t));
  const HandleState state = voidedState(before);
  backend().copyToPrivate(view_.state, &state, sizeof state);
  emptyRoute(view_, shape_.tokensMax,
             [&](void* to, const void* from, std::size_t bytes) { backend().copyToPrivate(to, from, bytes); });
  if (shape_.arrivals) {
    std::vector<Flag> words(static_cast<std::size_t>(localExperts()));
    backend().readWords(words.data(), view_.arriving.complete, words.size());
    settleArrivals(words);
    backend().copyToPrivate(view_.arriving.complete, words.data(), words.size() * sizeof(Flag));
  }
  Failure& why = *view_.fault;
  why = {};
  why.fault = Fault::voided;
  why.peer = room_.view.rank;
  std::atomic_ref(why.ready).store(state.faults, std::memory_order_release);
  routeVoid_ = true;
}

// The next route, which a graph may make too, clears the record.
// A token crosses to a domain once, to one rank there, which forwards it. Without that rank the others get nothing.
void Handle::requireRails(const char* call) const {
  if (!view_.hasRails() || comm_.lost().empty()) return;
  throw Error(moeUnsupported,
              fmt::format("{}: {} lost, and HT across several domains needs all ranks: use an LL handle", call,
                          bootstrap::describeRanks(comm_.lost()) + (comm_.lost().size() == 1 ? " is" : " are")));
}

void Handle::checkNotVoid(const char* call) const {
  if (!routeVoid_) return;
  const std::optional<Failure> why = fault();
  if (!why || why->fault != Fault::voided) return;
  throw Error(moeInvalidUsage,
              fmt::format("{}: moeCommRecover has voided the route of this handle: call moeRoute", call));
}

}  // namespace moe
