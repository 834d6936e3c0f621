#include "transport/tcp/helper.h"

#include <poll.h>

#include <algorithm>
#include <array>

namespace moe {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::microseconds;

constexpr int kLooks = 400;        // before it sleeps: some 200 us
constexpr int kLooksPerYield = 4;  // yields to ranks that share the processor and want to send
// A longer yield shows that another thread has used the processor and was not itself waiting.
constexpr microseconds kLongYield{300};
constexpr int kCrowdedWaits = 50;
constexpr std::int64_t kSleepMin = 50, kSleepMax = 1000;  // microseconds

TcpHelper* of(void* transport) {
  return static_cast<TcpHelper*>(transport);
}

}  // namespace

TcpHelper::TcpHelper(const std::vector<std::unique_ptr<TcpRing>>& rings)
    : rings_(rings),
      table_{this,
             [](void* self) noexcept { return of(self)->advance(); },
             [](void* self) noexcept { of(self)->flush(); },
             [](void* self, int times) noexcept { of(self)->pause(times); },
             [](void* self, bool soon) noexcept { of(self)->leave(soon); },
             [](void* self) noexcept { of(self)->wake(); }} {}

bool TcpHelper::advance() noexcept {
  bool moved = false;
  for (const auto& ring : rings_) {
    moved = ring->carrier.help().moved || moved;
    moved = ring->receiver.help() || moved;
  }
  return moved;
}

// The carrier's thread, once woken, finds the work that another thread has begun or missed.
void TcpHelper::flush() noexcept {
  for (const auto& ring : rings_) {
    if (ring->carrier.help().left) ring->carrier.wake();
  }
}

void TcpHelper::pause(int times) noexcept {
  if (!spins(times)) sleep(times);
}

// Any thread may read and change crowded_, which is a guess.
bool TcpHelper::spins(int times) noexcept {
  const int crowded = crowded_.load(std::memory_order_relaxed);
  if (crowded > 0) {
    if (times == 1) crowded_.store(crowded - 1, std::memory_order_relaxed);
    return false;
  }
  if (times > kLooks) return false;
  if (times % kLooksPerYield != 0) return true;
  const auto before = Clock::now();
  std::this_thread::yield();
  if (Clock::now() - before > kLongYield) crowded_.store(kCrowdedWaits, std::memory_order_relaxed);
  return true;
}

// The data that the step waits for may also arrive in another way, so it checks now and then.
void TcpHelper::sleep(int times) const noexcept {
  std::array<pollfd, std::size_t{2} * kPutRingsMax> sources;
  nfds_t count = 0;
  for (const auto& ring : rings_) {
    sources[count++] = {ring->receiver.readiness(), POLLIN, 0};
    sources[count++] = {ring->sender.readiness(), POLLIN, 0};
  }
  const std::int64_t most = std::min(kSleepMin << std::clamp(times - 1, 0, 5), kSleepMax);
  const timespec limit{0, static_cast<long>(most * 1000)};
  (void)::ppoll(sources.data(), count, &limit, nullptr);
}

void TcpHelper::leave(bool soon) noexcept {
  flush();
  if (!soon) return;
  for (const auto& ring : rings_) ring->receiver.takeOver();
}

void TcpHelper::wake() noexcept {
  for (const auto& ring : rings_) ring->carrier.wake();
}

}  // namespace moe
