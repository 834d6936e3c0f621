#include "perf/moe_perf/runner.h"

#include <algorithm>
#include <utility>

#include "perf/statistics.h"

namespace moe::perf {
namespace {

// Iterations that are not checked in full check one group of columns in this many.
constexpr int kSampleStride = 16;

constexpr int kPhaseMarks = 4;
constexpr int kPairMarks = 3;

}  // namespace

Runner::Runner(const Options& options, Device& device, moeComm_t comm, Group& group, int tokens)
    : options_(options),
      device_(device),
      group_(group),
      tokens_(tokens),
      checks_(device),
      exchange_(options, evenLoad(group.nranks(), tokens), device, comm, checks_),
      timedIterations_(toDevice(device, std::vector<std::uint32_t>{kTimedIteration, kTimedIteration + 1})) {
  static_assert(kVersions == 2);
  device.reserveMarks(options.timedIterations() * kPhaseMarks);
  makeSteps();
}

void Runner::makeSteps() {
  const auto add = [this](std::vector<Step>& steps, Step record) {
    steps.push_back(exchange_.makeStep(std::move(record)));
  };
  for (int i = 0; i < kVersions; ++i) {
    add(verifiedSteps_, [this, i] { exchange_.iterate(i, 1); });
    add(sampledSteps_, [this, i] { exchange_.iterate(i, kSampleStride); });
    add(routeSteps_, [this, i] { exchange_.route(i); });
    add(dispatchSteps_, chained([this, i](int) { exchange_.dispatch(i); }));
    add(combineSteps_, chained([this, i](int) { exchange_.combine(i); }));
    add(pairSteps_, chained([this, i](int) {
          exchange_.dispatch(i);
          exchange_.combine(i);
        }));
    add(wholeSteps_, chained([this, i](int link) {
          const int version = (i + link) % kVersions;
          exchange_.routeDispatch(version);
          exchange_.combine(version);
        }));
  }
}

Runner::Step Runner::chained(std::function<void(int)> link) const {
  return [link = std::move(link), count = options_.chain] {
    for (int n = 0; n < count; ++n) link(n);
  };
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
  result.verdict = checks_.gatherVerdict(device_, group_);
  addBytes(result);
  result.multiprocessors = countMultiprocessors();
  result.choseMultiprocessors = options_.sms == 0 && result.multiprocessors.dispatch > 0;
  group_.barrier();  // no rank frees while another still communicates
  return result;
}

void Runner::verifiedPass(const std::function<void(const std::string&)>& progress) {
  for (int i = 0; i < options_.iters; ++i) {
    const bool full = i % options_.verifyEvery == 0 || i + 1 == options_.iters;
    const auto version = static_cast<std::size_t>(i % kVersions);
    (full ? verifiedSteps_ : sampledSteps_)[version]();
    if (i == 0 || i + 1 == options_.iters) exchange_.countWrongCounts(i % kVersions);
    progress("verifying iteration " + std::to_string(i + 1) + "/" + std::to_string(options_.iters));
  }
  exchange_.settle();
}

// Fills both sources with lasting payloads, and makes the expert rows of both versions from them.
void Runner::prepareTimedPasses() {
  for (int version = 0; version < kVersions; ++version) {
    exchange_.setIteration(kTimedIteration + static_cast<std::uint32_t>(version));
    exchange_.fill(version);
    exchange_.route(version);
    exchange_.dispatch(version);
    exchange_.runExperts(version);
  }
  exchange_.settle();
}

void Runner::phasePass(CaseResult& result) {
  int version = 0;
  for (int i = -options_.warmup; i < options_.timedIterations(); ++i) {
    version = (i + options_.warmup) % kVersions;
    const auto index = static_cast<std::size_t>(version);
    const auto mark = [&](int number) {
      if (i >= 0) device_.mark(i * kPhaseMarks + number);
    };
    routeSteps_[index]();
    mark(0);
    dispatchSteps_[index]();
    mark(1);
    refillSlots(version);
    mark(2);
    combineSteps_[index]();
    mark(3);
  }
  exchange_.settle();
  result.dispatch = slowestSamples(kPhaseMarks, 0, 1, &result.ranks.dispatch);
  result.combine = slowestSamples(kPhaseMarks, 2, 3, &result.ranks.combine);
  exchange_.setIteration(kTimedIteration + static_cast<std::uint32_t>(version));
  exchange_.verifyDispatch(version, 1);
  exchange_.verifyCombine(version, 1);
  exchange_.countWrongCounts(version);
  letPeersGoOn();
}

// The handle's memory holds the expert rows of one version at a time. Combines in a row all read the same rows.
void Runner::refillSlots(int version) {
  for (auto& session : exchange_.sessions()) {
    if (session->inSlots()) session->runExperts(version, timedIterations_.get() + version);
  }
}

// The peers' next dispatch overwrites rows that stay in their slots. This barrier holds it back until they are
// verified.
void Runner::letPeersGoOn() {
  device_.wait();
  group_.barrier();
}

// Alternates between dispatch and combine on the existing route, and whole steps with ids that differ from step to
// step.
void Runner::pairPass(CaseResult& result) {
  int version = 0;
  routeSteps_[0]();
  for (int i = -options_.warmup; i < options_.timedIterations(); ++i) {
    const int first = (version + 1) % kVersions;
    if (i >= 0) device_.mark(i * kPairMarks);
    pairSteps_[static_cast<std::size_t>(version)]();
    if (i >= 0) device_.mark(i * kPairMarks + 1);
    wholeSteps_[static_cast<std::size_t>(first)]();
    if (i >= 0) device_.mark(i * kPairMarks + 2);
    version = (first + options_.chain - 1) % kVersions;
  }
  exchange_.settle();
  result.pair = slowestSamples(kPairMarks, 0, 1, &result.ranks.pair);
  result.step = slowestSamples(kPairMarks, 1, 2, &result.ranks.step);
  verifyLastStep(version);
  letPeersGoOn();
}

void Runner::verifyLastStep(int version) {
  exchange_.setIteration(kTimedIteration + static_cast<std::uint32_t>(version));
  exchange_.verifyDispatch(version, 1);
  exchange_.countWrongCounts(version);
  if (options_.staysInSlots()) {  // the step has summed rows there that experts had made for another route
    refillSlots(version);
    combineSteps_[static_cast<std::size_t>(version)]();
  }
  exchange_.verifyCombine(version, 1);
}

void Runner::memcpyPass(CaseResult& result) {
  for (int i = -1; i < options_.timedIterations(); ++i) {
    group_.barrier();  // all ranks copy at the same time, as they dispatch
    if (i >= 0) device_.mark(i * kPairMarks);
    for (auto& session : exchange_.sessions()) session->copyLogicalRows(std::max(i, 0) % kVersions);
    if (i >= 0) device_.mark(i * kPairMarks + 1);
  }
  result.memcpyTimes = group_.slowest(samples(kPairMarks, 0, 1));
}

// The library makes the same choice in a graph, where it can be read.
Multiprocessors Runner::countMultiprocessors() {
  return {device_.blocksOf([this] { exchange_.dispatch(0); }), device_.blocksOf([this] { exchange_.combine(0); })};
}

std::vector<double> Runner::samples(int markStep, int first, int second) {
  std::vector<double> times;
  for (int i = 0; i < options_.timedIterations(); ++i) {
    times.push_back(device_.microsecondsBetween(i * markStep + first, i * markStep + second));
  }
  return times;
}

// Collective. Times of one operation; `rankMedians` gets each rank's own median.
std::vector<double> Runner::slowestSamples(int markStep, int first, int second, std::vector<double>* rankMedians) {
  const std::vector<std::vector<double>> ranks = group_.gather(samples(markStep, first, second));
  for (const std::vector<double>& rank : ranks) rankMedians->push_back(summarize(ofOne(rank)).median);
  return ofOne(Group::slowestOf(ranks));
}

std::vector<double> Runner::ofOne(std::vector<double> chains) const {
  for (double& microseconds : chains) microseconds /= options_.chain;
  return chains;
}

void Runner::addBytes(CaseResult& result) const {
  const double row = options_.travellingRowBytes() + options_.sideBytes();
  const double combineRow = options_.combineTravellingBytes();
  for (const auto& session : exchange_.sessions()) {
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
