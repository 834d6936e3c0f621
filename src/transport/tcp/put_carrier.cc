#include "transport/tcp/put_carrier.h"

#include <poll.h>
#include <sys/eventfd.h>

#include <algorithm>

#include "base/deadline.h"
#include "base/error.h"
#include "base/quiet_thread.h"

namespace moe {
namespace {

using std::chrono::microseconds;

constexpr microseconds kRefusedRest{500};  // pause before a refused put is offered again
// After this many puts the sink gets its turn.
constexpr int kPutsPerRound = 256;
constexpr std::size_t kBytesPerRound = std::size_t{128} << 10;

// How a thread waits if nobody rings: it looks again at once, then yields, then sleeps longer and longer.
class Nap {
 public:
  void wake() { rounds_ = 0; }
  // How long to sleep now.
  microseconds next() {
    constexpr int kSpins = 200, kYields = 50;
    constexpr std::int64_t kShortest = 20, kLongest = 500;  // microseconds
    ++rounds_;
    if (rounds_ > kSpins && rounds_ <= kSpins + kYields) std::this_thread::yield();
    if (rounds_ <= kSpins + kYields) return {};
    const int doublings = std::min(rounds_ - kSpins - kYields - 1, 8);
    rounds_ = std::min(rounds_, kSpins + kYields + 8);
    return microseconds(std::min(kShortest << doublings, kLongest));
  }

 private:
  int rounds_ = 0;
};

// Reports what `body` throws, and returns false then.
template <class Body>
bool reports(const PutCarrier::Fail& fail, Body body) {
  try {
    body();
    return true;
  } catch (...) {  // NOLINT: it is reported
    reportCurrentError(fail);
  }
  return false;
}

}  // namespace

PutBell::PutBell() : event_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  if (!event_) throw systemError("cannot make an eventfd to wake a thread");
}

// Both sides use an atomic exchange, so the second one sees everything that the first one did before.
void PutBell::ring() noexcept {
  if (dozes_.exchange(false, std::memory_order_acq_rel)) (void)::eventfd_write(event_.get(), 1);
}

void PutBell::sleep(std::chrono::microseconds most, int other, int another) noexcept {
  pollfd entries[] = {{event_.get(), POLLIN, 0}, {other, POLLIN, 0}, {another, POLLIN, 0}};
  const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(most);
  const timespec limit{seconds.count(), static_cast<long>(std::chrono::nanoseconds(most - seconds).count())};
  (void)::ppoll(entries, std::size(entries), &limit, nullptr);
}

void PutBell::rise() noexcept {
  if (dozes_.exchange(false, std::memory_order_acq_rel)) return;
  eventfd_t rings = 0;  // if its writer comes later, the next sleep is short
  (void)::eventfd_read(event_.get(), &rings);
}

PutCarrier::PutCarrier(Backend& backend, std::uint32_t slots, PutSink& sink, Fail fail, std::vector<int> lost)
    : intake_(backend, slots, std::move(lost)),
      sink_(sink),
      fail_(std::move(fail)),
      posters_(backend.kind() == moeBackendHost ? Posters::ring : Posters::silent) {}

void PutCarrier::start() {
  thread_ = startQuietThread([this] { reports(fail_, [this] { run(); }); });
}

void PutCarrier::stop() noexcept {
  stop_.store(true, std::memory_order_release);
  bell_.ring();
  if (thread_.joinable()) thread_.join();
}

void PutCarrier::run() {
  Nap nap;
  sink_.begin();
  while (!stop_.load(std::memory_order_acquire)) {
    if (round()) {
      nap.wake();
    } else if (posters_ == Posters::ring) {
      rest();
    } else if (const microseconds most = nap.next(); most > microseconds::zero()) {
      bell_.sleep(most, sink_.readiness());
    }
  }
  const std::lock_guard lock(carrying_);
  if (!broken_) sink_.progress();
}

bool PutCarrier::round() {
  const std::lock_guard lock(carrying_);
  if (broken_) return false;
  bool moved = false;
  broken_ = !reports(fail_, [&] {
    const bool took = takeSome();
    moved = sink_.progress() || took;
  });
  if (broken_) stop_.store(true, std::memory_order_release);
  return moved;
}

void PutCarrier::rest() {
  bell_.doze();
  if (!round() && !stop_.load(std::memory_order_acquire)) {
    bell_.sleep(refused_ ? std::min(kRefusedRest, sink_.restMost()) : sink_.restMost(), sink_.readiness());
  }
  bell_.rise();
}

PutCarrier::Help PutCarrier::help() noexcept {
  const std::unique_lock lock(carrying_, std::try_to_lock);
  if (!lock.owns_lock()) return {false, true};
  if (broken_) return {false, false};
  Help help{false, false};
  broken_ = !reports(fail_, [&] {
    bool took = true;
    while (took) {
      took = takeSome();
      help.moved = sink_.progress() || took || help.moved;
    }
    Put put;
    help.left = intake_.next(&put) || sink_.waits();
  });
  return help;
}

bool PutCarrier::takeSome() {
  Put put;
  int count = 0;
  std::size_t bytes = 0;
  refused_ = false;
  while (count < kPutsPerRound && bytes < kBytesPerRound && intake_.next(&put)) {
    refused_ = !sink_.carry(put);
    if (refused_) break;
    intake_.pop();
    ++count;
    bytes += put.bytes;
  }
  intake_.release();
  return count > 0;
}

bool PutCarrier::waitTaken(const Deadline& deadline, const std::function<bool()>& giveUp) {
  const std::uint64_t posted = intake_.posted();
  bell_.ring();
  return pollUntil(
      deadline, [&] { return intake_.released() == posted; }, giveUp);
}

}  // namespace moe
