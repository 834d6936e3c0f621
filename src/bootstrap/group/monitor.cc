#include "bootstrap/group/monitor.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"
#include "base/quiet_thread.h"

namespace moe::bootstrap {
namespace {

using std::chrono::milliseconds;
constexpr milliseconds kGoodbye{1000};
constexpr milliseconds kLastParent{300};
constexpr int kIdleWaitMs = 1000;

}  // namespace

Monitor::Monitor(Node& node, Callbacks callbacks, const std::vector<HostIdentity>& processes)
    : node_(node), callbacks_(std::move(callbacks)), reparent_(node), processes_(node.group().rank, processes) {
  node_.endCollectives();
  node_.addSource(processes_);
  thread_ = startQuietThread([this] { run(); });
}

void Monitor::stop(const Company& company) noexcept {
  if (!node_.mailbox().leaveAsked()) company_ = company;
  node_.mailbox().askToLeave();
  if (thread_.joinable() && thread_.get_id() != std::this_thread::get_id()) thread_.join();
}

void Monitor::run() {
  const int rank = node_.group().rank;
  try {
    watch();
    findParentBeforeLeaving();
    node_.sayGoodbye(Deadline::after(kGoodbye));
  } catch (...) {  // NOLINT: it is reported
    reportCurrentError([&](moeResult_t result, const std::string& sentence) {
      const bool roomy = sentence != kNoMemory;  // room for more words
      giveUp({rank, result, roomy ? fmt::format("rank {}: its monitor has failed: {}", rank, sentence) : sentence});
    });
  }
}

// Nobody watches any more, and nobody will learn of later failures, so the others are told now.
void Monitor::giveUp(const Failure& failure) {
  report(failure);
  node_.announce(failure);
  node_.sayGoodbye(Deadline::after(milliseconds(0)));
}

bool Monitor::mayLeave() {
  if (!node_.mailbox().leaveAsked()) return false;
  node_.readMail();
  if (node_.asksWhoIsLate()) return false;  // the others wait for this rank to tell them the answer
  if (company_.count == 0 || (waited_ && waited_->expired())) return true;
  if (!waited_) {
    node_.announceLeaving();
    waited_ = Deadline::after(company_.patience);
  }
  for (int rank = company_.first; rank < company_.first + company_.count; ++rank) {
    if (!node_.leaving(rank) && !node_.failed(rank)) return false;
  }
  return true;
}

void Monitor::watch() {
  Deadline tick = Deadline::after(callbacks_.tick);
  while (!mayLeave()) {
    // First, because some may be from before the start.
    for (const Failure& failure : node_.takeNewFailures()) report(failure);
    reparent_.step();
    lookAtProcesses();
    node_.warnOfShortage();
    if (callbacks_.onTick && tick.expired()) {
      callbacks_.onTick();
      tick = Deadline::after(callbacks_.tick);
    }
    int wait = std::min(waited_ ? waited_->leftMs() : kIdleWaitMs, reparent_.waitMsMax());
    if (callbacks_.onTick) wait = std::min(wait, tick.leftMs());
    node_.round(wait);
  }
  for (const Failure& failure : node_.takeNewFailures()) report(failure);
}

// Runs after the round in which the end was seen, because events of that round may be older.
void Monitor::lookAtProcesses() {
  std::erase_if(processes_.ended(), [&](ProcessWatch::Ended& ended) {
    return ended.seen++ > 0 && node_.processEnded(ended.rank, ended.goodbyeEnd.expired());
  });
}

void Monitor::report(const Failure& failure) noexcept {
  try {
    if (callbacks_.onFailure) callbacks_.onFailure(failure);
  } catch (...) {  // the watching must go on
  }
}

// A rank between two parents would say goodbye only to its own subtree, so it finds a parent first.
void Monitor::findParentBeforeLeaving() {
  const Deadline deadline = Deadline::after(kLastParent);
  while (!deadline.expired() && reparent_.needed() && !reparent_.resting()) {
    reparent_.step();
    node_.round(std::min(deadline.leftMs(), reparent_.waitMsMax()));
  }
}

}  // namespace moe::bootstrap
