#include "perf/transport/transport_link.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <stdexcept>
#include <thread>

#include "base/error.h"
#include "device/policy/host/post.h"
#include "device/policy/host/queue_memory.h"
#include "device/queue/put_helper.h"
#include "transport/transports.h"

namespace moe::perf {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::uint64_t kPostedMax = std::uint64_t{256} << 10;  // in bytes; each small put counts as much

Config configFor(const Options& options, int nranks) {
  moeConfig_t asked = MOE_CONFIG_INITIALIZER;
  asked.domainSize = options.domainSize;
  asked.transport = options.transport;
  asked.timeoutMs = options.timeoutMs;
  Config config = resolveConfig(&asked);
  if (config.domainSize == 0) config.domainSize = 1;
  if (nranks % config.domainSize == 0 && nranks > config.domainSize) return config;
  throw std::runtime_error(fmt::format(
      "--transport-test needs several domains: {} ranks are not two or more domains of {}", nranks, config.domainSize));
}

std::vector<CardBytes> gatherCards(Group& group, const CardBytes& mine) {
  const auto* first = reinterpret_cast<const std::byte*>(mine.data());
  std::vector<CardBytes> all;
  for (const auto& bytes : group.gatherBytes({first, first + mine.size()})) {
    const auto* begin = reinterpret_cast<const std::uint8_t*>(bytes.data());
    all.emplace_back(begin, begin + bytes.size());
  }
  return all;
}

std::vector<std::string> gatherTexts(Group& group, const std::string& mine) {
  std::vector<std::string> all;
  for (const CardBytes& text : gatherCards(group, {mine.begin(), mine.end()}))
    all.emplace_back(text.begin(), text.end());
  return all;
}

}  // namespace

TransportLink::TransportLink(const Options& options, Group& group, std::size_t dataBytes)
    : rank_(group.rank()),
      nranks_(group.nranks()),
      config_(configFor(options, group.nranks())),
      windowBytes_(dataBytes + 2 * static_cast<std::size_t>(nranks_) * sizeof(std::uint64_t)),
      signals_(dataBytes),
      backend_(makeHostBackend()),
      window_(backend_->allocateHostVisible(windowBytes_)),
      log_({config_.logLevel, config_.logFile}, rank_, nranks_),
      sent_(static_cast<std::size_t>(nranks_)),
      seen_(static_cast<std::size_t>(nranks_)),
      orders_{0, static_cast<std::uint64_t>(config_.timeoutMs) * 1000000} {
  std::memset(window_.get(), 0, windowBytes_);
  const bootstrap::Key offered = bootstrap::randomKey();
  const CardBytes first = gatherCards(group, {offered.begin(), offered.end()}).front();
  std::copy(first.begin(), first.end(), key_.begin());
  const int asked = config_.transport;
  transport_ = makeFirstPossible(setup(), asked != 0 ? std::vector{asked} : fastestFirst(moeBackendHost),
                                 [&](const std::string& mine) { return gatherTexts(group, mine); });
  const std::vector<CardBytes> cards = gatherCards(group, transport_->card());
  transport_->connect(cards, Deadline::after(std::chrono::milliseconds(config_.timeoutMs)));
  view_ = transport_->view();
  group.barrier();
}

RemoteSetup TransportLink::setup() {
  RemoteSetup setup{rank_,         nranks_,      {},
                    window_.get(), windowBytes_, *backend_,
                    log_,          orders_,      config_.interfaceName,
                    config_.rdma,  {},           signalOf(nranks_)};
  for (int peer = 0; peer < nranks_; ++peer) {
    if (isRemote(peer)) setup.peers.push_back(peer);
  }
  setup.keyOf = [key = key_](int) { return key; };
  setup.fail = [this](moeResult_t, const std::string& sentence) {
    const std::lock_guard lock(mutex_);
    if (failure_.empty()) failure_ = sentence;
    HostQueueMemory().publish(&orders_.abort, std::uint64_t{1});
  };
  return setup;
}

void TransportLink::put(int to, std::uint64_t target, std::uint64_t source, std::uint32_t bytes) {
  post(putBytes(to, target, source, bytes));
  posted_ += 256 + bytes;
  if (posted_ > kPostedMax) carry();
}

void TransportLink::signal(int to) {
  post(putWord(to, signalOf(rank_), ++sent_[static_cast<std::size_t>(to)]));
  carry();
}

// Carries the posted puts, as a step does.
void TransportLink::carry() {
  posted_ = 0;
  if (view_.helper != nullptr) view_.helper->flush();
}

void TransportLink::post(const Put& put) {
  const HostQueueMemory memory;
  const WaitLimit limit{memory.nanoseconds(), &orders_};
  if (!moe::post(memory, view_, put, limit)) giveUp(fmt::format("puts to rank {} make no progress", put.to));
}

void TransportLink::awaitSignal(int from) {
  const HostQueueMemory memory;
  const std::uint64_t wanted = ++seen_[static_cast<std::size_t>(from)];
  const auto* word = reinterpret_cast<const std::uint64_t*>(at(signalOf(from)));
  const auto end = Clock::now() + std::chrono::milliseconds(config_.timeoutMs);
  int idle = 0;
  while (memory.load(word) < wanted) {
    if (memory.load(&orders_.abort) != 0 || Clock::now() > end)
      giveUp(fmt::format("no word has come from rank {}", from));
    if (view_.helper == nullptr) std::this_thread::yield();
    if (view_.helper != nullptr && !view_.helper->advance()) view_.helper->pause(++idle);
  }
}

void TransportLink::close(Group& group) {
  group.barrier();
  transport_->finish(Deadline::after(std::chrono::milliseconds(config_.timeoutMs)), [] { return false; });
  group.barrier();
}

void TransportLink::giveUp(const std::string& why) {
  const std::lock_guard lock(mutex_);
  throw std::runtime_error(failure_.empty() ? fmt::format("{} in {} ms", why, config_.timeoutMs) : failure_);
}

}  // namespace moe::perf
