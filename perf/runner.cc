#include "runner.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <stdexcept>
#include <utility>

namespace moe::perf {
namespace {

// In iterations that are not checked in full, one group of columns in this many.
constexpr int kSampleStride = 16;

// Payloads of the timed passes; above any iteration of the verified pass.
constexpr std::uint32_t kTimedIteration = 0x40000000;

constexpr int kPhaseMarks = 5;
constexpr int kPairMarks = 2;

}  // namespace

std::uint64_t sessionSeed(const Options& options, int session) {
  return mix(options.seed ^ (static_cast<std::uint64_t>(session) + 1) << 56);
}

Runner::Runner(const Options& options, Device& device, moeComm_t comm, Group& group, int tokens)
    : options_(options),
      device_(device),
      comm_(comm),
      group_(group),
      tokens_(tokens),
      iteration_(device, 1),
      findings_(device, 1) {
  for (int i = 0; i < (options.interleave ? 2 : 1); ++i) {
    sessions_.push_back(
        std::make_unique<Session>(options, device, comm, iteration_.get(), sessionSeed(options, i), tokens));
  }
  device.reserveMarks(options.iters * kPhaseMarks);
  if (options.graph && !device.hasGraphs()) throw std::runtime_error("--graph: the host backend has no graphs");
  makeSteps();
}

Runner::Step Runner::makeStep(std::function<void()> record) {
  if (!options_.graph) return {std::move(record)};
  const int graph = device_.capture(record);
  return {[this, graph] { device_.launch(graph); }};
}

void Runner::makeSteps() {
  for (int i = 0; i < kVersions; ++i) {
    verifiedSteps_.push_back(makeStep([this, i] { verifiedIteration(i, 1); }));
    sampledSteps_.push_back(makeStep([this, i] { verifiedIteration(i, kSampleStride); }));
    routeSteps_.push_back(makeStep([this, i] {
      for (auto& session : sessions_) session->route(i);
    }));
    dispatchSteps_.push_back(makeStep([this, i] { dispatchAll(i); }));
    combineSteps_.push_back(makeStep([this, i] { combineAll(i); }));
    pairSteps_.push_back(makeStep([this, i] {
      for (int n = 0; n < options_.chain; ++n) {
        dispatchAll(i);
        combineAll(0);
      }
    }));
  }
}

void Runner::dispatchAll(int source) {
  for (auto& session : sessions_) session->dispatch(source);
  if (!options_.sendOnly) return;
  for (auto& session : sessions_) session->complete();
}

void Runner::combineAll(int version) {
  for (auto& session : sessions_) session->combine(version);
  if (!options_.sendOnly) return;
  for (auto& session : sessions_) session->complete();
}

// With two sessions: route A, dispatch A, route B, dispatch B, then both combines.
void Runner::verifiedIteration(int version, int stride) {
  for (auto& session : sessions_) {
    session->fill(version);
    session->route(version);
    session->dispatch(version);
  }
  for (auto& session : sessions_) {
    if (options_.sendOnly) session->complete();
    session->verifyDispatch(version, stride, findings_.get());
    session->runExperts(version);
  }
  combineAll(version);
  for (auto& session : sessions_) session->verifyCombine(version, stride, findings_.get());
  device_.run(Advance{iteration_.get()});
}

CaseResult Runner::run(const std::function<void(const std::string&)>& progress) {
  CaseResult result;
  result.tokens = tokens_;
  group_.barrier();  // every rank has allocated
  verifiedPass(progress);
  progress("timing");
  prepareTimedPasses();
  phasePass(result);
  pairPass(result);
  if (!device_.hasGraphs()) memcpyPass(result);
  addFindings(result);
  addBytes(result);
  group_.barrier();  // nobody frees while another still communicates
  return result;
}

void Runner::verifiedPass(const std::function<void(const std::string&)>& progress) {
  for (int i = 0; i < options_.iters; ++i) {
    const bool full = i % options_.verifyEvery == 0 || i + 1 == options_.iters;
    const auto version = static_cast<std::size_t>(i % kVersions);
    (full ? verifiedSteps_ : sampledSteps_)[version].play();
    if (i == 0 || i + 1 == options_.iters) countWrongCounts(i % kVersions);
    progress("verifying iteration " + std::to_string(i + 1) + "/" + std::to_string(options_.iters));
  }
  settle();
}

// Both sources hold payloads that stay, and the expert rows of both versions belong to them.
void Runner::prepareTimedPasses() {
  for (int version = 0; version < kVersions; ++version) {
    setIteration(kTimedIteration + static_cast<std::uint32_t>(version));
    for (auto& session : sessions_) {
      session->fill(version);
      session->route(version);
    }
    dispatchAll(version);
    for (auto& session : sessions_) session->runExperts(version);
  }
  settle();
}

void Runner::phasePass(CaseResult& result) {
  int version = 0;
  for (int i = -options_.warmup; i < options_.iters; ++i) {
    version = (i + options_.warmup) % kVersions;
    const auto index = static_cast<std::size_t>(version);
    const auto mark = [&](int number) {
      if (i >= 0) device_.mark(i * kPhaseMarks + number);
    };
    mark(0);
    routeSteps_[index].play();
    mark(1);
    dispatchSteps_[index].play();
    mark(2);
    refillSlots(version);
    mark(3);
    combineSteps_[index].play();
    mark(4);
  }
  settle();
  result.route = group_.slowest(samples(kPhaseMarks, 0, 1));
  result.dispatch = group_.slowest(samples(kPhaseMarks, 1, 2));
  result.combine = group_.slowest(samples(kPhaseMarks, 3, 4));
  setIteration(kTimedIteration + static_cast<std::uint32_t>(version));
  for (auto& session : sessions_) {
    session->verifyDispatch(version, 1, findings_.get());
    session->verifyCombine(version, 1, findings_.get());
  }
  countWrongCounts(version);
  letPeersGoOn();
}

// The handle's memory holds the expert rows of one version at a time.
void Runner::refillSlots(int version) {
  for (auto& session : sessions_) {
    if (session->inSlots()) session->runExperts(version);
  }
}

// Rows that stay in their slots are overwritten by the peers' next dispatch: not while they are verified.
void Runner::letPeersGoOn() {
  device_.wait();
  group_.barrier();
}

// One route, dispatch and combine back to back; the payload alternates.
void Runner::pairPass(CaseResult& result) {
  routeSteps_[0].play();
  dispatchAll(0);
  refillSlots(0);
  combineAll(0);
  int source = 0;
  for (int i = -options_.warmup; i < options_.iters; ++i) {
    source = (i + options_.warmup) % kVersions;
    if (i >= 0) device_.mark(i * kPairMarks);
    pairSteps_[static_cast<std::size_t>(source)].play();
    if (i >= 0) device_.mark(i * kPairMarks + 1);
  }
  settle();
  result.pair = group_.slowest(samples(kPairMarks, 0, 1));
  for (double& microseconds : result.pair) microseconds /= options_.chain;
  setIteration(kTimedIteration + static_cast<std::uint32_t>(source));
  for (auto& session : sessions_) session->verifyDispatch(0, 1, findings_.get());
  setIteration(kTimedIteration);
  for (auto& session : sessions_) session->verifyCombine(0, 1, findings_.get());
  letPeersGoOn();
}

void Runner::memcpyPass(CaseResult& result) {
  for (int i = -1; i < options_.iters; ++i) {
    group_.barrier();  // all ranks copy at the same time, as they dispatch
    if (i >= 0) device_.mark(i * kPairMarks);
    for (auto& session : sessions_) session->copyLogicalRows(std::max(i, 0) % kVersions);
    if (i >= 0) device_.mark(i * kPairMarks + 1);
  }
  result.memcpyTimes = group_.slowest(samples(kPairMarks, 0, 1));
}

void Runner::setIteration(std::uint32_t iteration) {
  device_.upload(iteration_.get(), &iteration, sizeof(iteration));
}

void Runner::countWrongCounts(int version) {
  device_.wait();  // counts of a replayed route are there when the stream has passed it
  for (auto& session : sessions_) wrongCounts_ += static_cast<std::uint64_t>(session->wrongCounts(version));
}

void Runner::settle() {
  device_.wait();
  moeResult_t failure = moeSuccess;
  check(moeCommGetAsyncError(comm_, &failure), comm_, "moeCommGetAsyncError");
  check(failure, comm_, "asynchronous failure");
}

std::vector<double> Runner::samples(int markStep, int first, int second) {
  std::vector<double> times;
  for (int i = 0; i < options_.iters; ++i) {
    times.push_back(device_.microsecondsBetween(i * markStep + first, i * markStep + second));
  }
  return times;
}

void Runner::addFindings(CaseResult& result) {
  Findings mine{};
  device_.download(&mine, findings_.get(), sizeof(mine));
  mine.wrongMetadata += wrongCounts_;
  for (const auto& rank : group_.gather(std::vector<Findings>{mine})) {
    result.wrongPayloads += rank.at(0).wrongPayloads;
    result.wrongMetadata += rank.at(0).wrongMetadata;
    result.wrongCombines += rank.at(0).wrongCombines;
    result.maxRelError = std::max(result.maxRelError, std::bit_cast<double>(rank.at(0).maxRelErrorBits));
  }
}

void Runner::addBytes(CaseResult& result) const {
  const double row = options_.rowBytes() + options_.sideBytes();
  const double combineRow = options_.hidden * elementBytes(combineFormat(options_.format));
  for (const auto& session : sessions_) {
    for (int version = 0; version < kVersions; ++version) {
      const double share = 1.0 / kVersions / group_.nranks();
      const Plan& plan = session->plan(version);
      result.remoteBytes += static_cast<double>(plan.remoteRowsAll) * row * share;
      result.logicalBytes += static_cast<double>(plan.logicalRowsAll) * row * share;
      result.combineRemoteBytes += static_cast<double>(plan.remoteRowsAll) * combineRow * share;
    }
  }
}

}  // namespace moe::perf
