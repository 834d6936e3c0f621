#include "support/simulator/simulator.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "support/simulator/sim_steps.h"
#include "support/simulator/simulator_parts.h"

namespace moe::sim {
namespace {

constexpr std::uint64_t kEventsMax = 20'000'000;

}  // namespace

Simulator::Simulator(TestComm& comm, Program& program, std::uint64_t seed, Faults faults, bool trace)
    : comm_(comm),
      program_(program),
      rng_(seed),
      faults_(faults),
      trace_(trace),
      laziness_(1 + rng_.below(6)),
      slowWarps_(rng_.oneIn(3)) {
  makeQueues();
  for (int r = 0; r < program.nranks(); ++r) {
    auto rank = std::make_unique<Rank>();
    rank->rank = r;
    rank->slowness = std::uint64_t{1} << rng_.below(4);
    rank->linger = rng_.next() % 5'000;
    int warps = 1;
    for (const test::Task& task : program.tasks(r)) {
      warps = std::max(warps, task.warps + (task.dispatch ? task.dispatch->warps : 0));
    }
    ++warps;  // for the one that watches
    for (int i = 0; i < warps; ++i) {
      auto warp = std::make_unique<Warp>();
      warp->id = static_cast<std::uint32_t>(warps_.size());
      warp->rank = r;
      warp->fiber = std::make_unique<Fiber>([this, self = warp.get()] {
        for (;;) runWarp(*self);
      });
      rank->warps.push_back(warp.get());
      warps_.push_back(std::move(warp));
    }
    ranks_.push_back(std::move(rank));
  }
}

Simulator::~Simulator() = default;

// ---- Events

void Simulator::push(std::uint64_t time, Kind kind, std::uint32_t index, std::uint32_t generation) {
  heap_.push_back({time, order_++, kind, index, generation});
  std::push_heap(heap_.begin(), heap_.end());
}

Simulator::Event Simulator::pop() {
  std::pop_heap(heap_.begin(), heap_.end());
  const Event event = heap_.back();
  heap_.pop_back();
  now_ = std::max(now_, event.time);
  ++events_;
  return event;
}

Simulator::Warp* Simulator::nextWarp() {
  while (!heap_.empty() && events_ < kEventsMax) {
    const Event event = pop();
    switch (event.kind) {
      case Kind::land:
        if (stores_[event.index].generation == event.generation) land(event.index);
        break;
      case Kind::look:
        look(event.index);
        break;
      case Kind::carry:
        carry(event.index);
        break;
      case Kind::complete:
        complete(event.index);
        break;
      case Kind::depart:
        depart(static_cast<int>(event.index));
        break;
      case Kind::resume:
      case Kind::deadline:
        if (warps_[event.index]->generation != event.generation) break;
        ++warps_[event.index]->generation;
        return warps_[event.index].get();
      case Kind::startTask:
      case Kind::abort:
        mainEvent_ = event;
        mainHasEvent_ = true;
        return nullptr;
    }
  }
  return nullptr;
}

void Simulator::giveUp() {
  Warp* self = current_;
  Warp* next = nextWarp();
  current_ = next;
  if (next == self) return;
  (next != nullptr ? *next->fiber : main_).switchFrom(*self->fiber);
}

Outcome Simulator::run() {
  for (auto& rank : ranks_) push(rng_.next() % 20'000, Kind::startTask, static_cast<std::uint32_t>(rank->rank));
  for (auto& rank : ranks_) {
    if (faults_.abortNs != 0)
      push(faults_.abortNs + rng_.next() % faults_.abortSpreadNs, Kind::abort, static_cast<std::uint32_t>(rank->rank));
  }
  do {
    mainHasEvent_ = false;
    current_ = nextWarp();
    if (current_ != nullptr) current_->fiber->switchFrom(main_);
    if (!mainHasEvent_) continue;
    if (mainEvent_.kind == Kind::startTask) {
      Rank& rank = *ranks_[mainEvent_.index];
      if (rank.inTask) endTask(rank);
      if (!rank.done) startTask(rank);
    } else {
      const int rank = static_cast<int>(mainEvent_.index);
      comm_.rank(rank).orders.abort = 1;
      wakeStopped(comm_.view(rank));
    }
  } while (mainHasEvent_);
  Outcome outcome;
  outcome.events = events_;
  outcome.defect = defect_;
  outcome.lookUps = lookUps_;
  for (auto& rank : ranks_) {
    if (!rank->done) outcome.defect += fmt::format("rank {} never ended; ", rank->rank);
    outcome.ranks.push_back(rank->result);
  }
  return outcome;
}

// ---- Ranks and their steps

void Simulator::startTask(Rank& rank) {
  const auto& tasks = program_.tasks(rank.rank);
  rank.result.finished = rank.nextTask == tasks.size();
  rank.result.left = !rank.result.finished && rank.rank == faults_.leaver && rank.nextTask == faults_.leaveTask;
  if (rank.result.finished || rank.result.left) {
    push(now_ + rng_.next() % 20'000, Kind::depart, static_cast<std::uint32_t>(rank.rank));
    return endRank(rank);
  }
  const test::Task& task = tasks[rank.nextTask];
  if (trace_) fmt::print("{:>10} rank {} starts {}\n", now_, rank.rank, task.name);
  rank.inTask = true;
  rank.pauses = rank.warpsLeft = 0;
  if (task.dispatch) {
    const test::PreparedCall call = test::prepareCall(task);
    rank.params = call.route;
    rank.dispatch = call.dispatch;
    startWarps(rank, *task.dispatch, task.warps);
  } else {
    rank.params = task.prepare();
  }
  rank.routing = task.warps;
  rank.step = stepFor(task, rank.params);
  startWarps(rank, task, 0);
  rank.watch = task.dispatch ? task.dispatch->watch() : task.watch();
  if (rank.watch.count == 0) return;
  ++rank.warpsLeft;
  push(now_ + rng_.next() % 1000, Kind::resume, rank.warps.back()->id, rank.warps.back()->generation);
}

void Simulator::startWarps(Rank& rank, const test::Task& task, int first) {
  rank.warpsLeft += task.warps;
  for (int i = 0; i < task.warps; ++i) {
    Warp& warp = *rank.warps[static_cast<std::size_t>(first + i)];
    warp.index = {i, task.warps, task.warps};
    warp.slowness = slowWarps_ && rng_.oneIn(task.warps) ? std::uint64_t{1} << rng_.below(8) : 1;
    const std::uint64_t late = rank.rank == faults_.lateRank && rowOf(task.step).waits() ? faults_.lateNs : 0;
    push(now_ + late + pauseNs(warp), Kind::resume, warp.id, warp.generation);
  }
}

void Simulator::endTask(Rank& rank) {
  rank.inTask = false;
  const test::Task& task = program_.tasks(rank.rank)[rank.nextTask++];
  test::RankMemory& memory = comm_.rank(rank.rank);
  rank.result.failure = memory.failure;
  if (memory.failure.ready != 0) return endRank(rank);
  if (memory.orders.abort != 0) {
    rank.result.stopped = true;
    return endRank(rank);
  }
  task.finish();
  if (task.dispatch) task.dispatch->finish();
}

void Simulator::endRank(Rank& rank) {
  if (trace_) fmt::print("{:>10} rank {} ends\n", now_, rank.rank);
  rank.done = true;
  rank.result.endNs = now_;
}

// Tells the other ranks when everything that the rank has sent is there.
void Simulator::depart(int rank) {
  if (hasPutsUnderWay(rank)) return push(now_ + 10'000, Kind::depart, static_cast<std::uint32_t>(rank));
  if (trace_) fmt::print("{:>10} rank {} has left\n", now_, rank);
  someHaveLeft_ = true;
  for (int other = 0; other < program_.nranks(); ++other) {
    comm_.rank(other).departed[static_cast<std::size_t>(rank)] = 1;
    wakeStopped(comm_.view(other));
  }
}

void Simulator::runWarp(Warp& warp) {
  warp.lookUps = -1;
  Rank& rank = *ranks_[static_cast<std::size_t>(warp.rank)];
  if (&warp == rank.warps.back()) {
    lookOn(rank);
  } else {
    runStep(warp, rank);
  }
  pause();
  drain();  // the end of a step is a release
  if (runsRoute(warp, rank)) endRouting(rank);
  if (--rank.warpsLeft == 0) push(now_ + pauseNs(warp), Kind::startTask, static_cast<std::uint32_t>(rank.rank));
  giveUp();
}

// Warps behind those of a route run the dispatch that follows it.
bool Simulator::runsRoute(const Warp& warp, const Rank& rank) const {
  return warp.id < rank.warps[0]->id + static_cast<std::uint32_t>(program_.tasks(rank.rank)[rank.nextTask].warps);
}

// A dispatch that does not overlap with its route waits for it.
void Simulator::runStep(Warp& warp, Rank& rank) {
  const test::Task& task = program_.tasks(rank.rank)[rank.nextTask];
  const auto run = [&](Step step, const StepParams& params, int movers) {
    for (const auto part : {runRoute, runHtDispatch, runCast, runCombine, runLl, runCodedCombine, runSlots}) {
      if (part(*this, step, params, warp.index, movers)) break;
    }
  };
  if (runsRoute(warp, rank)) return run(rank.step, rank.params, task.movers);
  if (rank.dispatch.dispatch.besideRoute == 0) awaitRoute();
  run(task.dispatch->step, rank.dispatch, task.dispatch->movers);
}

void Simulator::lookOn(Rank& rank) {
  const test::Watch& watch = rank.watch;
  int missing = -1;
  const Purpose self{Phase::none, [&] { return rank.rank; }};
  const int first = rng_.below(watch.count);
  for (int n = 0; n < watch.count; ++n) {
    const int i = (first + n) % watch.count;
    if (watch.words == nullptr) {
      for (int pauses = rng_.below(8); pauses >= 0; --pauses) pause();
    } else {
      Flag* word = const_cast<Flag*>(watch.words + i);
      const auto end = wait(rank.params.comm, word, 1, watch.number, self, &missing, [](int, std::uint64_t) {});
      if (end != WaitEnd::reached) return;
    }
    watch.look(i);
  }
}

bool Simulator::mayDie(Rank& rank) {
  if (rank.rank != faults_.deadRank) return false;
  ++rank.pauses;
  return rank.nextTask > faults_.deadTask || (rank.nextTask == faults_.deadTask && rank.pauses > faults_.deadPause);
}

// The rank stops. Stores of its warps may still land, or may never land.
void Simulator::kill(Rank& rank) {
  if (trace_) fmt::print("{:>10} rank {} dies\n", now_, rank.rank);
  rank.dead = rank.done = rank.result.died = true;
  rank.result.endNs = now_;
  for (Warp* warp : rank.warps) {
    ++warp->generation;
    warp->waiting = false;
    for (std::uint32_t index : warp->pending) {
      if (rng_.coin()) ++stores_[index].generation;
    }
  }
}

// ---- Operations of the running warp

std::uint64_t Simulator::pauseNs(const Warp& warp) {
  std::uint64_t ns = 5 + rng_.next() % 60;
  if (faults_.lateRank >= 0) return ns;
  const int kind = rng_.below(2048);
  if (kind < 8) ns *= 100;
  if (kind == 8) ns *= 5000;
  return ns * warp.slowness * ranks_[static_cast<std::size_t>(warp.rank)]->slowness;
}

void Simulator::pause() {
  sleepUntil(now_ + pauseNs(*current_));
}

void Simulator::nap(int before) {
  sleepUntil(now_ + ((50 + rng_.next() % 100) << std::min(before, 11)));
}

void Simulator::awaitRoute() {
  Rank& rank = *ranks_[static_cast<std::size_t>(current_->rank)];
  if (rank.routing == 0) return;
  rank.awaitingRoute.push_back(current_);
  giveUp();
}

// One warp of the route has ended. With the last one, those that wait for the route go on.
void Simulator::endRouting(Rank& rank) {
  if (--rank.routing > 0) return;
  for (Warp* warp : std::exchange(rank.awaitingRoute, {})) {
    push(now_ + pauseNs(*warp), Kind::resume, warp->id, warp->generation);
  }
}

void Simulator::sleepUntil(std::uint64_t until) {
  Rank& rank = *ranks_[static_cast<std::size_t>(current_->rank)];
  if (mayDie(rank)) {
    kill(rank);
    return giveUp();  // never resumes: its events are stale
  }
  while (!heap_.empty() && heap_.front().time <= until && heap_.front().kind == Kind::land) {
    const Event event = pop();
    if (stores_[event.index].generation == event.generation) land(event.index);
  }
  if (heap_.empty() || heap_.front().time > until) {
    now_ = until;
    return;
  }
  push(until, Kind::resume, current_->id, current_->generation);
  giveUp();
}

void Simulator::beginLookUps() {
  current_->lookUps = 0;
}
void Simulator::countLookUp() {
  if (current_->lookUps >= 0) ++current_->lookUps;
}
void Simulator::endLookUps() {
  const int count = std::exchange(current_->lookUps, -1);
  if (count < 0) return;
  int& most = lookUps_[ranks_[static_cast<std::size_t>(current_->rank)]->step];
  most = std::max(most, count);
}

void Simulator::note(const char* what, const void* address, std::uint64_t value) {
  if (!trace_) return;
  const bool word = std::strcmp(what, "publish") == 0;
  fmt::print("{:>10} rank {} warp {} {} {} {} {}\n", now_, current_->rank, current_->index.index, what,
             comm_.nameOf(address), word ? flagEpoch(value) : value, word ? flagValue(value) : 0);
}

}  // namespace moe::sim
