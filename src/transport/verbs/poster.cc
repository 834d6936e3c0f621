#include "transport/verbs/poster.h"

#include "base/quiet_thread.h"

namespace moe::verbs {
namespace {

constexpr std::chrono::milliseconds kWatchEvery{10};

constexpr std::uint32_t kRingSlots = 4096;

}  // namespace

Carrier::Carrier(PutIntake& intake, Sender& sender, const EventWatch* events, FailureReport::Tell report,
                 const std::vector<int>& cpus)
    : intake_(intake), sender_(sender), events_(events), report_(std::move(report)) {
  thread_ = startQuietThread([this, cpus] {
    try {
      runOn(cpus);
      run();
    } catch (...) {  // NOLINT: it is reported
      report_.fail(currentFailure());
    }
  });
}

Carrier::~Carrier() {
  stop_.store(true, std::memory_order_release);
  thread_.join();
}

void Carrier::run() {
  while (!stop_.load(std::memory_order_acquire)) {
    bool busy = false;
    if (failed()) {
      drop();
    } else {
      busy = carry();
    }
    busy = sender_.poll() || busy;
    const Clock::time_point now = Clock::now();
    if (now >= watchAt_ || sender_.failure()) watch(now);  // an event explains more than the requests that it ended
    if (sender_.failure()) report_.fail(*sender_.failure());
    if (sender_.idle() && !begun_) arrived_.store(intake_.taken(), std::memory_order_release);
    restSome(busy, now);
  }
}

// Carries one chain of requests. Puts to one rank keep their order because all puts do. A put whose queue is full holds
// up all others.
bool Carrier::carry() {
  bool moved = false;
  for (std::size_t i = 0; i < Sender::kChain; ++i) {
    if (!begun_) {
      Put put;
      if (!intake_.next(&put)) break;
      intake_.pop();
      begun_ = put;
    }
    if (!sender_.offer(&*begun_)) break;
    begun_.reset();
    moved = true;
  }
  sender_.flush();
  intake_.release();
  return moved;
}

// After a failure posters must not wait for room. Their puts are dropped.
void Carrier::drop() {
  Put put;
  while (intake_.next(&put)) intake_.pop();
  intake_.release();
}

void Carrier::watch(Clock::time_point now) {
  watchAt_ = now + kWatchEvery;
  if (events_ == nullptr) return;
  if (const std::optional<SendFailure> failure = events_->poll()) report_.fail(*failure);
}

void Carrier::restSome(bool busy, Clock::time_point now) {
  if (busy) busyAt_ = now;
  rest(restAfter(now - busyAt_));
}

Poster::Poster(const RemoteSetup& setup, const LocalEnd& end, int index, int depth)
    : intake_(setup.backend, kRingSlots, setup.lost),
      sender_(end.railOf(index).adapter, {setup.window, setup.windowBytes, end.railOf(index).region.keys.local},
              end.completions(index), depth, setup.nranks, end.connections()) {}

void Poster::probe() {
  for (std::size_t queue = 0; queue < sender_.queues().size(); ++queue) {
    sender_.probe(queue);
    sender_.flush();
  }
}

void Poster::start(const EventWatch* events, const FailureReport::Tell& report, const std::vector<int>& cpus) {
  carrier_ = std::make_unique<Carrier>(intake_, sender_, events, report, cpus);
}

}  // namespace moe::verbs
