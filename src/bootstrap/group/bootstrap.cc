#include "bootstrap/group/bootstrap.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"
#include "bootstrap/group/fd_channel.h"
#include "bootstrap/group/monitor.h"
#include "bootstrap/group/node.h"
#include "bootstrap/group/unique_id.h"
#include "bootstrap/net/find_addresses.h"
#include "bootstrap/net/socket.h"

namespace moe::bootstrap {
namespace {

constexpr std::chrono::milliseconds kGoodbyeWithoutMonitor{300};  // neighbours answer only inside their collectives
constexpr std::string_view kFdPurpose = "fd";

}  // namespace

std::unique_ptr<Bootstrap> Bootstrap::join(const moeUniqueId_t& id, const Options& options) {
  return std::unique_ptr<Bootstrap>(new Bootstrap(joinGroup(id, options)));
}

std::unique_ptr<Bootstrap> Bootstrap::joinAsNewcomer(const moeUniqueId_t& id, const Options& options,
                                                     std::span<const std::uint8_t> card,
                                                     std::vector<std::uint8_t>* table) {
  return std::unique_ptr<Bootstrap>(new Bootstrap(bootstrap::joinAsNewcomer(id, options, card, table)));
}

Bootstrap::Bootstrap(std::unique_ptr<Node> node)
    : node_(std::move(node)), fetchEnd_(Deadline::after(node_->group().timeout * 3 / 4)) {}
Bootstrap::~Bootstrap() {
  leave();
}

int Bootstrap::rank() const {
  return node_->group().rank;
}
int Bootstrap::nranks() const {
  return node_->group().nranks;
}

const std::vector<Address>& Bootstrap::addressesOf(int rank) const {
  return node_->group().addresses.at(static_cast<std::size_t>(rank));
}

void Bootstrap::requireCollectives(const char* what) const {
  if (left_) throw Error(moeInvalidUsage, fmt::format("rank {} has left the group: {}", rank(), what));
  if (!monitor_ || monitor_->resting()) return;
  throw Error(moeInvalidUsage, fmt::format("{} is not possible while the monitor runs", what));
}

std::vector<std::vector<std::uint8_t>> Bootstrap::collect(std::span<const std::uint8_t> mine, const char* what) {
  requireCollectives(what);
  try {
    auto all = node_->allGather(mine, what, Deadline::after(node_->group().timeout));
    fetchEnd_ = Deadline::after(node_->group().timeout * 3 / 4);
    return all;
  } catch (...) {
    if (node_->broken()) throw;
    // This rank is no longer in step with the others.
    const Error error = currentErrorOf(rank());
    node_->announce({rank(), error.result(), error.what()});
    throw Error(error);
  }
}

std::vector<std::vector<std::uint8_t>> Bootstrap::allGather(std::span<const std::uint8_t> mine, const char* what) {
  if (mine.size() > kPayloadBytesMax) {
    throw Error(moeInvalidArgument,
                fmt::format("a blob of {} bytes exceeds the {} bytes of an all-gather", mine.size(), kPayloadBytesMax));
  }
  return collect(mine, what);
}

void Bootstrap::barrier() {
  collect({}, "the barrier");
}

void Bootstrap::throwIfBroken(const char* what) {
  requireCollectives(what);
  node_->round(0);
  node_->throwIfBroken(what);
}

Key Bootstrap::keyFor(std::string_view purpose, int rank) const {
  Writer context;
  context.u32(static_cast<std::uint32_t>(rank) + node_->incarnation(rank) * kRankCountMax);
  return deriveKey(node_->group().key, purpose, context.view());
}

void Bootstrap::serveFd(int fd) {
  requireCollectives("serveFd");
  stopServingFd();
  fdServer_ = std::make_unique<FdServer>(keyFor(kFdPurpose, rank()), fd);
  node_->addSource(*fdServer_);
}

void Bootstrap::stopServingFd() {
  if (fdServer_) node_->removeSource(*fdServer_);
  fdServer_.reset();
}

Fd Bootstrap::fetchFdFrom(int rank, Deadline deadline) {
  requireCollectives("fetchFdFrom");
  if (fetchEnd_.at() < deadline.at()) deadline = fetchEnd_;
  FdFetch fetch(keyFor(kFdPurpose, rank));
  const AddedSource added(*node_, fetch);
  while (!fetch.done()) {
    node_->throwIfBroken("passing descriptors");
    if (deadline.expired()) {
      throw Error(moeTimeout, fmt::format("rank {} did not pass its descriptor to rank {} in time ({})", rank,
                                          this->rank(), fetch.problem().empty() ? "no answer" : fetch.problem()));
    }
    node_->round(deadline.leftMs());
  }
  return fetch.take();
}

void Bootstrap::startMonitor(std::function<void(const Failure&)> onFailure, std::function<void()> onTick,
                             std::chrono::milliseconds tick, const std::vector<HostIdentity>& processes) {
  requireCollectives("startMonitor");
  if (monitor_) throw Error(moeInvalidUsage, "startMonitor is not possible twice");
  stopServingFd();
  tick = std::max(tick, std::chrono::milliseconds(1));
  monitor_ =
      std::make_unique<Monitor>(*node_, Monitor::Callbacks{std::move(onFailure), std::move(onTick), tick}, processes);
}

void Bootstrap::holdMonitor(std::chrono::milliseconds timeout) {
  monitor_->rest();
  node_->setTimeout(timeout);
  fetchEnd_ = Deadline::after(timeout * 3 / 4);
}

void Bootstrap::releaseMonitor() noexcept {
  stopServingFd();
  stopAwaiting([&](const NewcomerServer& server) { return !node_->gone(server.rank()); });
  monitor_->goOn();
}

void Bootstrap::setTimeout(std::chrono::milliseconds timeout) {
  node_->setTimeout(timeout);
  fetchEnd_ = Deadline::after(timeout * 3 / 4);
}

void Bootstrap::recover(moeResult_t result, const std::string& sentence, Losses losses) {
  requireCollectives("recover");
  node_->recover({rank(), result, sentence}, losses);
}

void Bootstrap::giveUp(int rank, const std::string& sentence) {
  requireCollectives("giveUp");
  node_->takeForDead(rank, sentence);
}

std::vector<int> Bootstrap::lost() const {
  std::vector<int> ranks;
  for (int rank = 0; rank < nranks(); ++rank) {
    if (isLost(rank)) ranks.push_back(rank);
  }
  return ranks;
}

bool Bootstrap::isLost(int rank) const {
  return node_->lost(rank);
}

bool Bootstrap::mayRecover() const {
  return node_->mayRecover();
}

bool Bootstrap::othersGaveUp() const {
  return node_->othersGaveUp();
}

// ---- Newcomers ----

void Bootstrap::stopAwaiting(const std::function<bool(const NewcomerServer&)>& which) noexcept {
  std::erase_if(awaited_, [&](const auto& server) {
    if (!which(*server)) return false;
    node_->removeSource(*server);
    return true;
  });
}

moeUniqueId_t Bootstrap::awaitNewcomer(int rank, const std::string& interfaceName, CheckNewcomer check) {
  requireCollectives("awaitNewcomer");
  node_->round(0);
  if (!node_->gone(rank)) throw Error(moeInvalidUsage, fmt::format("rank {} has neither died nor left", rank));
  Listener listener = listenTcp(localAddresses(interfaceName), 0);
  const IdContents contents{true, node_->group().key, listener.addresses, true};
  stopAwaiting([&](const NewcomerServer& server) { return server.rank() == rank; });
  awaited_.push_back(std::make_unique<NewcomerServer>(rank, nranks(), std::move(listener.sockets), node_->group().key,
                                                      std::move(check)));
  node_->addSource(*awaited_.back());
  return encodeUniqueId(contents);
}

std::vector<Newcomer> Bootstrap::gatherNewcomers(const char* what) {
  requireCollectives("gatherNewcomers");
  node_->round(0);  // some may have gone
  Writer mine;
  for (const auto& server : awaited_) {
    if (!isLost(server->rank())) continue;
    const auto next = static_cast<Incarnation>(node_->incarnation(server->rank()) + 1);
    if (const auto newcomer = server->waiting(next)) newcomer->write(mine);
  }
  const auto all = allGather(mine.view(), what);
  std::vector<Newcomer> chosen;
  for (int sponsor = 0; sponsor < nranks(); ++sponsor) {
    Reader in(all[static_cast<std::size_t>(sponsor)]);
    while (in.left() > 0) {
      auto newcomer = Newcomer::read(in);
      if (!newcomer || newcomer->rank < 0 || newcomer->rank >= nranks() || !isLost(newcomer->rank)) {
        throw Error(moeInternalError, fmt::format("rank {} has told malformed newcomers", sponsor));
      }
      newcomer->sponsor = sponsor;
      const auto taken = std::any_of(chosen.begin(), chosen.end(),
                                     [&](const Newcomer& other) { return other.rank == newcomer->rank; });
      if (taken) {
        refuse(*newcomer, moeInvalidUsage,
               fmt::format("moeCommInit: another process has taken the place of rank {}", newcomer->rank));
      } else {
        chosen.push_back(std::move(*newcomer));
      }
    }
  }
  return chosen;
}

void Bootstrap::refuse(const Newcomer& newcomer, moeResult_t result, const std::string& sentence) {
  if (NewcomerServer* server = serverOf(newcomer)) server->refuse(newcomer.visit, result, sentence);
}

// The server at which a newcomer waits; NULL: not here.
NewcomerServer* Bootstrap::serverOf(const Newcomer& newcomer) const {
  if (newcomer.sponsor != rank()) return nullptr;
  for (const auto& server : awaited_) {
    if (server->rank() == newcomer.rank) return server.get();
  }
  return nullptr;
}

// When the barrier is complete, every rank expects the newcomers, so these find open doors.
void Bootstrap::takeIn(std::span<const Newcomer> newcomers, std::span<const HostIdentity> processes,
                       std::span<const std::uint8_t> table, const char* what) {
  std::vector<int> ranks;
  for (std::size_t i = 0; i < newcomers.size(); ++i) {
    node_->expect(newcomers[i].rank, newcomers[i].incarnation, newcomers[i].addresses);
    monitor_->watch(newcomers[i].rank, processes[i]);
    ranks.push_back(newcomers[i].rank);
  }
  collect({}, what);
  node_->takeIn(ranks);
  const std::vector<std::uint8_t> state = tableFor(*node_, table);
  for (const Newcomer& newcomer : newcomers) {
    if (NewcomerServer* server = serverOf(newcomer)) server->send(newcomer.visit, state);
  }
}

void Bootstrap::announceFailure(moeResult_t result, const std::string& sentence) {
  node_->mailbox().post({rank(), result == moeSuccess ? moeInternalError : result, sentence});
}

void Bootstrap::announceIfFirst(const Error& error) {
  if (!node_->broken()) announceFailure(error.result(), error.what());
}

void Bootstrap::reportLateWait(int awaited, moeResult_t result, const std::string& sentence) {
  node_->mailbox().postLate({{rank(), result, sentence}, awaited});
}

void Bootstrap::announceLeaving() noexcept {
  node_->mailbox().endWork();
}

bool Bootstrap::hasLeft(int rank) const {
  return node_->left(rank);
}

bool Bootstrap::isLeaving(int rank) const {
  return node_->leaving(rank);
}

void Bootstrap::leave(const Company& company) noexcept {
  if (std::exchange(left_, true)) return;
  if (monitor_) return monitor_->stop(company);
  try {
    stopServingFd();
    node_->sayGoodbye(Deadline::after(kGoodbyeWithoutMonitor));
  } catch (const std::exception&) {  // the node closes its connections, which the others notice
  }
}

}  // namespace moe::bootstrap
