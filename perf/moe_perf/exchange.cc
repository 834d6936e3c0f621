#include "perf/moe_perf/exchange.h"

#include <algorithm>
#include <bit>
#include <stdexcept>
#include <utility>

namespace moe::perf {

Verdict Checks::gatherVerdict(Device& device, Group& group) const {
  Findings mine{};
  device.download(&mine, findings.get(), sizeof(mine));
  mine.wrongMetadata += wrongCounts;
  Verdict verdict;
  for (const auto& rank : group.gather(std::vector<Findings>{mine})) {
    verdict.wrongPayloads += rank.at(0).wrongPayloads;
    verdict.wrongMetadata += rank.at(0).wrongMetadata;
    verdict.wrongCombines += rank.at(0).wrongCombines;
    verdict.maxRelError = std::max(verdict.maxRelError, std::bit_cast<double>(rank.at(0).maxRelErrorBits));
  }
  return verdict;
}

std::uint64_t sessionSeed(const Options& options, int session) {
  return mix(options.seed ^ (static_cast<std::uint64_t>(session) + 1) << 56);
}

Exchange::Exchange(const Options& options, const Load& load, Device& device, moeComm_t comm, Checks& checks)
    : options_(options), device_(device), comm_(comm), checks_(checks) {
  if (options.graph && !device.hasGraphs()) throw std::runtime_error("--graph: the host backend has no graphs");
  for (int i = 0; i < options.sessions(); ++i) {
    sessions_.push_back(
        std::make_unique<Session>(options, device, comm, checks.iteration.get(), sessionSeed(options, i), load));
  }
}

Exchange::Step Exchange::makeStep(Step record) {
  if (!options_.graph) return record;
  const int graph = device_.capture(record);
  return [this, graph] { device_.launch(graph); };
}

void Exchange::iterate(int version, int stride, bool faulty) {
  for (auto& session : sessions_) {
    session->fill(version);
    if (version % 2 == 1) {
      session->routeDispatch(version, isBad(session, faulty));
    } else {
      session->route(version, isBad(session, faulty));
      session->dispatch(version);
    }
  }
  for (auto& session : sessions_) {
    if (options_.sendOnly) session->complete();
    session->verifyFault(isBad(session, faulty), checks_.findings.get());
    if (isBad(session, faulty)) continue;
    session->verifyDispatch(version, stride, checks_.findings.get());
    session->runExperts(version);
  }
  combine(version);
  for (auto& session : sessions_) {
    session->verifyCombine(version, stride, checks_.findings.get(), isBad(session, faulty));
  }
  device_.run(Advance{checks_.iteration.get()});
}

void Exchange::fill(int source) {
  for (auto& session : sessions_) session->fill(source);
}

void Exchange::route(int version) {
  for (auto& session : sessions_) session->route(version);
}

void Exchange::routeDispatch(int version) {
  for (auto& session : sessions_) session->routeDispatch(version);
  if (options_.sendOnly) complete();
}

void Exchange::dispatch(int source) {
  for (auto& session : sessions_) session->dispatch(source);
  if (options_.sendOnly) complete();
}

void Exchange::runExperts(int version) {
  for (auto& session : sessions_) session->runExperts(version);
}

// If an HT combine awaits completion, no other one may start before that.
void Exchange::combine(int version) {
  const bool oneByOne = options_.sendOnly && options_.mode == moeModeHt;
  for (auto& session : sessions_) {
    session->combine(version);
    if (oneByOne) session->complete();
  }
  if (options_.sendOnly && !oneByOne) complete();
}

void Exchange::complete() {
  for (auto& session : sessions_) session->complete();
}

void Exchange::verifyDispatch(int version, int stride) {
  for (auto& session : sessions_) session->verifyDispatch(version, stride, checks_.findings.get());
}

void Exchange::verifyCombine(int version, int stride) {
  for (auto& session : sessions_) session->verifyCombine(version, stride, checks_.findings.get());
}

void Exchange::setIteration(std::uint32_t iteration) {
  device_.upload(checks_.iteration.get(), &iteration, sizeof(iteration));
}

void Exchange::countWrongCounts(int version, bool faulty) {
  device_.wait();  // counts of a replayed route are ready when the stream has passed it
  for (auto& session : sessions_) {
    const int wrong = isBad(session, faulty) ? session->wrongFault(version) : session->wrongCounts(version);
    checks_.wrongCounts += static_cast<std::uint64_t>(wrong);
  }
}

void Exchange::settle() {
  device_.wait();
  moeResult_t failure = moeSuccess;
  check(moeCommGetAsyncError(comm_, &failure), comm_, "moeCommGetAsyncError");
  check(failure, comm_, "asynchronous failure");
}

}  // namespace moe::perf
