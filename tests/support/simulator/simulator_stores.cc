// The simulator's memory: stores that land later, in any order, and warps that wait for them.
#include <fmt/format.h>

#include <algorithm>
#include <bitset>
#include <cstring>
#include <functional>

#include "device/queue/landing.h"
#include "support/simulator/simulator_parts.h"

namespace moe::sim {
namespace {

constexpr std::uint64_t kLookNs = 10'000'000;
constexpr std::size_t kFlagsMax = 1024;  // of a wait

}  // namespace

std::uint64_t Simulator::landingNs() {
  constexpr int kKinds = 64, kOrdinary = kKinds - 1;
  const int kind = faults_.lateRank >= 0 ? kOrdinary : rng_.below(kKinds);  // nothing but that rank is slow then
  return (20 + rng_.next() % 400) * (kind == 0 ? 200u : kind < 8 ? 10u : 1u);
}

void Simulator::store(void* to, const void* from, std::uint32_t bytes) {
  const auto* source = static_cast<const std::uint8_t*>(from);
  auto* target = static_cast<std::uint8_t*>(to);
  while (bytes > 0) {
    const std::uint32_t piece = std::min(bytes, 16 * (1 + static_cast<std::uint32_t>(rng_.below(4))));
    if (freeStores_.empty()) {
      freeStores_.push_back(static_cast<std::uint32_t>(stores_.size()));
      stores_.emplace_back();
    }
    const std::uint32_t index = freeStores_.back();
    freeStores_.pop_back();
    Store& store = stores_[index];
    store.to = target;
    store.bytes = piece;
    store.wakes = store.flag = store.adds = false;
    store.warp = current_->id;
    store.place = static_cast<std::uint32_t>(current_->pending.size());
    std::memcpy(store.data, source, piece);
    current_->pending.push_back(index);
    // A lazy store waits until a release makes it land.
    if (!rng_.oneIn(laziness_)) push(now_ + landingNs(), Kind::land, index, store.generation);
    source += piece;
    target += piece;
    bytes -= piece;
  }
}

void Simulator::storeFlag(Flag* flag, Flag word) {
  storeEagerly(flag, &word, sizeof word);
  stores_[current_->pending.back()].flag = true;
}

void Simulator::storeLanding(std::uint32_t* word, std::uint32_t value) {
  storeEagerly(word, &value, sizeof value);
}

// Stores one piece that lands without a release.
void Simulator::storeEagerly(void* to, const void* from, std::uint32_t bytes) {
  store(to, from, bytes);
  const std::uint32_t index = current_->pending.back();
  stores_[index].wakes = true;
  push(now_ + landingNs(), Kind::land, index, stores_[index].generation);
}

void Simulator::addToFlag(Flag* flag, Flag share) {
  storeFlag(flag, share);
  stores_[current_->pending.back()].adds = true;
}

void Simulator::land(std::uint32_t index) {
  Store& store = stores_[index];
  if (store.adds) {
    Flag sum, share;
    std::memcpy(&sum, store.to, sizeof sum);
    std::memcpy(&share, store.data, sizeof share);
    sum += share;
    std::memcpy(store.data, &sum, sizeof sum);
  }
  if (store.flag) checkGrowth(store);
  std::memcpy(store.to, store.data, store.bytes);
  ++store.generation;
  std::vector<std::uint32_t>& pending = warps_[store.warp]->pending;
  pending[store.place] = pending.back();
  stores_[pending[store.place]].place = store.place;
  pending.pop_back();
  freeStores_.push_back(index);
  if (store.wakes) wakeWaiters(store.to);
}

// Flags only grow. Otherwise a reader that waits for an epoch could miss one that was there.
void Simulator::checkGrowth(const Store& store) {
  Flag before, after;
  std::memcpy(&before, store.to, sizeof before);
  std::memcpy(&after, store.data, sizeof after);
  if (flagEpoch(after) >= flagEpoch(before)) return;
  defect_ =
      fmt::format("the flag {} went back from {} to {}; ", comm_.nameOf(store.to), flagEpoch(before), flagEpoch(after));
}

void Simulator::drain() {
  while (!current_->pending.empty()) land(current_->pending.front());
}

void Simulator::wakeWaiters(const void* landed) {
  const auto* at = static_cast<const std::uint8_t*>(landed);
  for (auto& warp : warps_) {
    if (!warp->waiting || at < warp->awaited || at >= warp->awaited + warp->awaitedBytes) continue;
    if (!(*warp->reached)()) continue;
    warp->waiting = false;
    push(now_ + pauseNs(*warp), Kind::resume, warp->id, warp->generation);
  }
}

void Simulator::wakeStopped(const CommView& comm) {
  for (Warp* warp : ranks_[static_cast<std::size_t>(comm.rank)]->warps) {
    if (!warp->waiting) continue;
    warp->waiting = false;
    push(now_ + pauseNs(*warp), Kind::resume, warp->id, warp->generation);
  }
}

Simulator::WaitEnd Simulator::wait(const CommView& comm, Flag* flags, int n, std::uint64_t epoch,
                                   const Purpose& purpose, int* missing, const CameIn& cameIn) {
  std::bitset<kFlagsMax> seen;
  const std::uint64_t begin = now_;
  const auto reached = [&] {
    *missing = -1;
    for (int i = n - 1; i >= 0; --i) {
      if (flagEpoch(flags[i]) < epoch) {
        *missing = i;
      } else if (const auto at = static_cast<std::size_t>(i); !seen[at]) {
        seen[at] = true;
        cameIn(i, now_ - begin);
      }
    }
    return *missing < 0;
  };
  pause();
  return waitFor(comm, flags, static_cast<std::size_t>(n) * sizeof *flags, std::ref(reached), purpose);
}

Simulator::WaitEnd Simulator::waitLanding(const CommView& comm, const std::uint32_t* words, int n,
                                          const Purpose& purpose) {
  const auto reached = [&] { return std::find(words, words + n, kNothingLanded) == words + n; };
  return waitFor(comm, words, static_cast<std::size_t>(n) * sizeof *words, std::ref(reached), purpose);
}

// A warp of a dying rank stays suspended here for ever, so a wait must not hold memory.
Simulator::WaitEnd Simulator::waitFor(const CommView& comm, const void* begin, std::size_t bytes,
                                      const std::function<bool()>& reached, const Purpose& purpose) {
  const std::uint64_t end = now_ + longestWait(purpose.phase, comm.orders->timeoutNs);
  Warp& self = *current_;
  while (!reached()) {
    if (comm.state->failuresClaimed != 0 || comm.orders->abort != 0) return WaitEnd::stopped;
    if (comm.departed[purpose.rankOf()] != 0)
      return WaitEnd::left;  // no grace period: what the rank sent has already landed
    if (now_ >= end) return WaitEnd::late;
    self.waiting = true;
    self.awaited = static_cast<const std::uint8_t*>(begin);
    self.awaitedBytes = bytes;
    self.reached = &reached;
    // One of several awaited ranks may have left. This wait looks again later, when the flags before that rank's have
    // come.
    push(someHaveLeft_ ? std::min(end, now_ + kLookNs) : end, Kind::deadline, self.id, self.generation);
    giveUp();
    self.waiting = false;
  }
  return WaitEnd::reached;
}

}  // namespace moe::sim
