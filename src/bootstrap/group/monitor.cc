#include "bootstrap/group/monitor.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"
#include "base/quiet_thread.h"

namespace moe::bootstrap {
namespace {

constexpr std::chrono::milliseconds kGoodbyeWay{1000};  // for a goodbye to travel over ranks that may be busy

using std::chrono::milliseconds;
constexpr milliseconds kGoodbye{1000};
constexpr milliseconds kLastParent{300};
constexpr int kIdleWaitMs = 1000;

}  // namespace

ProcessWatch::ProcessWatch(Node& node, const std::vector<HostIdentity>& ofRanks) : node_(node) {
  const int self = node.group().rank, nranks = static_cast<int>(ofRanks.size());
  if (nranks > 0) self_ = ofRanks[static_cast<std::size_t>(self)];
  for (int i = 1; i < nranks && watched_.size() < kMax; ++i) {
    const int rank = (self + i) % nranks;
    const HostIdentity& identity = ofRanks[static_cast<std::size_t>(rank)];
    if (!canWatch(ofRanks[static_cast<std::size_t>(self)], identity)) continue;
    if (Fd process = openProcess(identity)) watched_.push_back({rank, std::move(process), 0});
  }
}

void ProcessWatch::replace(int rank, const HostIdentity& identity) {
  std::erase_if(watched_, [&](const Watched& watched) { return watched.rank == rank; });
  std::erase_if(ended_, [&](const Ended& ended) { return ended.rank == rank; });
  if (!self_ || watched_.size() >= kMax || !canWatch(*self_, identity)) return;
  if (Fd process = openProcess(identity)) watched_.push_back({rank, std::move(process), 0});
}

void ProcessWatch::arm(PollSet& set) {
  for (Watched& watched : watched_) watched.index = set.add(watched.process.get(), POLLIN);
}

// The node learns of an end one round after the one in which it was seen, because events of that round may be older.
void ProcessWatch::serve(const PollSet& set) {
  std::erase_if(ended_, [&](const Ended& ended) { return node_.processEnded(ended.rank, ended.goodbyeEnd.expired()); });
  std::erase_if(watched_, [&](const Watched& watched) {
    if (set.at(watched.index) == 0) return false;
    ended_.push_back({watched.rank, Deadline::after(kGoodbyeWay)});
    return true;
  });
}

Monitor::Monitor(Node& node, Callbacks callbacks, const std::vector<HostIdentity>& processes)
    : node_(node), callbacks_(std::move(callbacks)), processes_(node, processes), watching_(node, processes_) {
  node_.seekParents();
  start();
}

void Monitor::start() {
  thread_ = startQuietThread([this] { run(); });
}

void Monitor::rest() {
  if (thread_.get_id() == std::this_thread::get_id()) {
    throw Error(moeInvalidUsage, "a function that the monitor calls, such as config.log, cannot run collectives");
  }
  restAsked_ = true;
  node_.mailbox().wake();
  if (thread_.joinable()) thread_.join();
  if (ended_) throw Error(moeSystemError, fmt::format("rank {}: its monitor has ended", node_.group().rank));
}

void Monitor::goOn() noexcept {
  restAsked_ = false;
  if (ended_) return;
  try {
    start();
  } catch (...) {  // NOLINT: it is reported
    reportCurrentError([this](moeResult_t result, const std::string& sentence) {
      ended_ = true;
      giveUp({node_.group().rank, result, sentence});
    });
  }
}

void Monitor::stop(const Company& company) noexcept {
  if (!node_.mailbox().leaveAsked()) company_ = company;
  node_.mailbox().askToLeave();
  if (thread_.joinable() && thread_.get_id() != std::this_thread::get_id()) thread_.join();
}

void Monitor::run() {
  const int rank = node_.group().rank;
  try {
    if (!watch()) return;
    ended_ = true;
    findParentBeforeLeaving();
    node_.sayGoodbye(Deadline::after(kGoodbye));
  } catch (...) {  // NOLINT: it is reported
    ended_ = true;
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

// Returns true if the rank leaves, and false if the thread rests.
bool Monitor::watch() {
  Deadline tick = Deadline::after(callbacks_.tick);
  while (!mayLeave()) {
    if (restAsked_) return false;
    // These come first, because some may be from before the start.
    for (const Failure& failure : node_.takeNewFailures()) report(failure);
    node_.warnOfShortage();
    if (callbacks_.onTick && tick.expired()) {
      callbacks_.onTick();
      tick = Deadline::after(callbacks_.tick);
    }
    int wait = waited_ ? waited_->leftMs() : kIdleWaitMs;
    if (callbacks_.onTick) wait = std::min(wait, tick.leftMs());
    node_.round(wait);
  }
  for (const Failure& failure : node_.takeNewFailures()) report(failure);
  return true;
}

void Monitor::report(const Failure& failure) noexcept {
  try {
    if (callbacks_.onFailure) callbacks_.onFailure(failure);
  } catch (...) {  // the watching must go on
  }
}

// A rank between two parents would say goodbye only to its own subtree, so it finds a parent first. If all others leave
// too, nobody needs to hear it.
void Monitor::findParentBeforeLeaving() {
  bool anyStays = false;
  for (int rank = 0; rank < node_.group().nranks; ++rank) {
    anyStays = anyStays || (rank != node_.group().rank && !node_.leaving(rank) && !node_.failed(rank));
  }
  if (!anyStays) return;
  const Deadline deadline = Deadline::after(kLastParent);
  while (!deadline.expired() && node_.seeksParent()) node_.round(deadline.leftMs());
}

}  // namespace moe::bootstrap
