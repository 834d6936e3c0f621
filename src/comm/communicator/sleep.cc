// Gives the memory of all windows back to the system, and takes fresh memory to the same addresses later (decision
// 0121). Both are collective. The words that outlast a step stay in host memory meanwhile.
#include <fmt/format.h>

#include "comm/communicator/comm.h"
#include "comm/communicator/domain_links.h"
#include "comm/communicator/joint_part.h"
#include "comm/communicator/rounds.h"
#include "comm/communicator/window_memory.h"
#include "device/view/settled.h"

namespace moe {

class CommSleep {
 public:
  // `call` is named in sentences.
  CommSleep(Comm& comm, const char* call) : comm_(comm), memory_(comm, *comm.bootstrap_), call_(call) {}

  void suspend() {
    const MonitorHeld held(*comm_.bootstrap_, comm_.timeout());
    JointPart(comm_).run([&] { inRound([&] { requireIdle(); }); });
    JointPart(comm_).runFinal([&] { layDown(); });
    comm_.log_->write(moeLogInfo, "comm",
                      "suspended: {} bytes of the window are given back, {} bytes of words are kept, after {:.1f} ms",
                      window().rangeBytes(), comm_.keptWords_.size() * sizeof(Flag), milliseconds());
  }

  void resume() {
    if (!comm_.suspended_) throw Error(moeInvalidUsage, "moeCommResume: the communicator is not suspended");
    const MonitorHeld held(*comm_.bootstrap_, comm_.timeout());
    JointPart(comm_).run([&] {
      try {
        inRound([&] { takeMemory(); });
        memory_.exchangeHandles(call_);
        inRound([&] { memory_.mapPeers(deadline()); });
        if (comm_.hasDomains()) DomainLinks(comm_, group(), comm_.timeout()).connectAgain();
      } catch (const AgreedError&) {  // one rank has no memory, so all stay asleep
        comm_.remote_.reset();
        memory_.giveUp();
        throw;
      }
    });
    comm_.hearTransports();
    comm_.keptWords_ = {};
    comm_.heap_->setAsleep(false);
    comm_.suspended_ = false;
    comm_.log_->write(moeLogInfo, "comm", "resumed: the window has {} bytes of fresh memory, after {:.1f} ms",
                      window().rangeBytes(), milliseconds());
  }

 private:
  bootstrap::Bootstrap& group() { return *comm_.bootstrap_; }
  Window& window() { return *comm_.room_.window; }
  Deadline deadline() const { return Deadline::after(comm_.timeout()); }

  template <class Work>
  void inRound(Work work) {
    together(group(), work, call_);
  }

  // Throws unless this rank's memory can go now.
  void requireIdle() {
    const int pending = comm_.pendingOperations();
    if (pending > 0) {
      throw Error(moeInvalidUsage,
                  fmt::format("moeCommSuspend: {} of this rank's operations {} moeComplete: complete {} first", pending,
                              pending == 1 ? "awaits" : "await", pending == 1 ? "it" : "them"));
    }
    if (const std::string why = window().whyFixed(); !why.empty())
      throw Error(moeUnsupported, "moeCommSuspend: the window " + why);
    comm_.backend_->synchronize();
    if (const moeResult_t result = comm_.status(); result != moeSuccess) throw Error(result, comm_.errors_.sentence());
  }

  // No step runs on any rank. Other ranks may still read this window until all have unmapped it.
  void layDown() {
    if (comm_.hasDomains()) DomainLinks(comm_, group(), comm_.timeout()).finish();
    comm_.suspended_ = true;
    comm_.heap_->setAsleep(true);
    comm_.hasReaders_ = false;  // all steps of all ranks have ended
    inRound([&] {
      keepWords();
      memory_.unmapPeers();
    });
    inRound([&] { memory_.giveBack(); });
  }

  void keepWords() {
    comm_.keptWords_.resize(lastingWords(comm_.layout()));
    comm_.backend_->readWords(comm_.keptWords_.data(), words(), comm_.keptWords_.size());
  }
  Flag* words() { return reinterpret_cast<Flag*>(window().base()); }

  // Peers map the window in the next round, so they see the words of this one.
  void takeMemory() {
    memory_.takeAnew();
    comm_.backend_->copyToPrivate(words(), comm_.keptWords_.data(), comm_.keptWords_.size() * sizeof(Flag));
  }

  double milliseconds() const {
    return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin_).count();
  }

  std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
  Comm& comm_;
  WindowMemory memory_;
  const char* call_;
};

int Comm::pendingOperations() const {
  return room_.operations.count() + (localRoom_ ? localRoom_->operations.count() : 0);
}

void Comm::suspend() {
  if (suspended_) throw Error(moeInvalidUsage, "moeCommSuspend: the communicator is suspended already");
  CommSleep(*this, "moeCommSuspend").suspend();
}

void Comm::resume() {
  requireConnected("moeCommResume");
  CommSleep(*this, "moeCommResume").resume();
}

void Comm::requireAwake(const char* call) const {
  if (!suspended_) return;
  throw Error(moeInvalidUsage, fmt::format("{}: {}", call, kSuspended));
}

}  // namespace moe
