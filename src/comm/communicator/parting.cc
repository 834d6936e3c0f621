// Takes a suspended communicator apart, so that its processes can be checkpointed, and lets the ranks meet again with a
// new id, perhaps on other hosts (decision 0136). Both are collective.
#include <fmt/format.h>

#include "bootstrap/group/failure.h"
#include "bootstrap/group/unique_id.h"
#include "comm/communicator/agreed_values.h"
#include "comm/communicator/comm.h"
#include "comm/communicator/joint_part.h"
#include "comm/communicator/places.h"
#include "comm/communicator/rounds.h"

namespace moe {
namespace {

constexpr const char* kPart = "moeCommDisconnect";
constexpr const char* kMeet = "moeCommReconnect";

// What a rank tells when it meets the others again.
struct ReturnCard {
  AgreedValues settings{};
  bootstrap::Key parting{};
};

}  // namespace

class CommParting {
 public:
  explicit CommParting(Comm& comm) : comm_(comm) {}

  void part() {
    if (!comm_.suspended_)
      throw Error(moeInvalidUsage, fmt::format("{}: the communicator is not suspended: call moeCommSuspend", kPart));
    if (comm_.disconnected_) throw Error(moeInvalidUsage, fmt::format("{}: it is disconnected already", kPart));
    {
      const MonitorHeld held(group(), comm_.timeout());
      JointPart(comm_).run([&] {
        together(
            group(), [&] { requireWhole(); }, kPart);
        nameParting();
      });
    }
    group().leave({0, comm_.nranks(), comm_.timeout()});
    if (const moeResult_t result = comm_.status(); result != moeSuccess) throw Error(result, comm_.errors_.sentence());
    comm_.watch_.reset();
    comm_.bootstrap_.reset();
    comm_.backend_->endThreads();
    comm_.disconnected_ = true;
    comm_.log_->write(moeLogInfo, "comm", "disconnected: this process may be checkpointed");
  }

  void meet(const moeUniqueId_t& id) {
    if (!comm_.disconnected_)
      throw Error(moeInvalidUsage, fmt::format("{}: the communicator is not disconnected", kMeet));
    if (bootstrap::decodeUniqueId(id).replaces)
      throw Error(moeInvalidArgument, fmt::format("{}: id is for a process in the place of a lost rank", kMeet));
    comm_.bootstrap_ = bootstrap::Bootstrap::join(id, comm_.bootstrapOptions(-1));
    try {
      announcing(group(), [&] { findOthers(); });
    } catch (const Error&) {
      partAgain();
      throw;
    }
    comm_.disconnected_ = false;
    comm_.startMonitor();
    comm_.log_->write(moeLogInfo, "comm", "met {} ranks again; the communicator is suspended", comm_.nranks());
  }

 private:
  bootstrap::Bootstrap& group() { return *comm_.bootstrap_; }

  void requireWhole() const {
    if (!comm_.lost_.empty()) {
      throw Error(moeUnsupported, fmt::format("{}: the group has lost {}, and only whole groups can meet again", kPart,
                                              bootstrap::describeRanks(comm_.lost_)));
    }
    if (const moeResult_t result = comm_.status(); result != moeSuccess) throw Error(result, comm_.errors_.sentence());
  }

  void nameParting() {
    const bootstrap::Key mine = bootstrap::randomKey();
    const auto all = group().allGather(comm_.rank() == 0 ? asBytes(mine) : std::span<const std::uint8_t>(), kPart);
    comm_.parting_ = readCard<bootstrap::Key>(all.front(), 0);
  }

  // The rounds of a meeting, after which all ranks are as they were when they parted.
  void findOthers() {
    recogniseOthers();
    Places places(comm_);
    places.gather(group());
    requireReach(places);
    tellWindows(places);
    comm_.toRank0_ = places.shareClock() ? ClockOffset{} : measureClock(group());
    forgetLeavers();
    together(
        group(), [&] { comm_.startWatch(); }, kMeet);
    group().barrier();
  }

  void recogniseOthers() {
    const ReturnCard mine{agreedValues(comm_.config_, comm_.backend_->kind()), comm_.parting_};
    const auto all = group().allGather(asBytes(mine), kMeet);
    const auto first = readCard<ReturnCard>(all.front(), 0);
    for (int rank = 1; rank < comm_.nranks(); ++rank) {
      const auto other = readCard<ReturnCard>(all[static_cast<std::size_t>(rank)], rank);
      if (const std::string why = disagreement(first.settings, 0, other.settings, rank); !why.empty())
        throw AgreedError(moeInvalidUsage, why);
      if (first.parting == other.parting) continue;
      throw AgreedError(moeInvalidUsage,
                        fmt::format("{}: ranks 0 and {} bring communicators that did not part together", kMeet, rank));
    }
  }

  void requireReach(Places& places) {
    const auto apart = apartInDomains(places.gatherReach(group()), comm_.room_.shape.domainSize);
    if (!apart) return;
    throw AgreedError(moeUnsupported,
                      fmt::format("{}: rank {} does not reach the memory of rank {} any more, in whose domain it is",
                                  kMeet, apart->first, apart->second));
  }

  void tellWindows(const Places& places) {
    const auto all = group().allGather(asBytes(places.cardOf(*comm_.room_.window)), kMeet);
    for (int rank = 0; rank < comm_.nranks(); ++rank) {
      const auto i = static_cast<std::size_t>(rank);
      comm_.peers_[i].card = readCard<WindowCard>(all[i], rank);
    }
    comm_.countSharers();
  }

  // All ranks had left.
  void forgetLeavers() {
    for (int rank = 0; rank < comm_.nranks(); ++rank) {
      std::atomic_ref(comm_.room_.view.departed[rank]).store(0, std::memory_order_release);
    }
    std::atomic_ref(comm_.orders()->left).store(0, std::memory_order_release);
  }

  void partAgain() {
    comm_.watch_.reset();
    comm_.bootstrap_.reset();
  }

  Comm& comm_;
};

void Comm::disconnect() {
  CommParting(*this).part();
}

void Comm::reconnect(const moeUniqueId_t& id) {
  CommParting(*this).meet(id);
}

void Comm::requireConnected(const char* call) const {
  if (!disconnected_) return;
  throw Error(moeInvalidUsage, fmt::format("{}: the communicator is disconnected: call moeCommReconnect", call));
}

}  // namespace moe
