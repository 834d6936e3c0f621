#include "perf/model/estimate.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "perf/model/destinations.h"

namespace moe::model {
namespace {

constexpr int kChunkRows = 32;  // rows of a rail between two arrival words
// Words per remote rank: the terms that must agree, and the flag. Combines compare no terms.
constexpr double kLlDispatchWords = 2, kLlCombineWords = 1;

Traffic directTraffic(const Workload& w, int inDomain, double copies, double wordsPerRank) {
  const double total = copies * w.tokens, others = w.ranks - inDomain;
  return {total * others / w.ranks, total * (inDomain - 1) / w.ranks, wordsPerRank * others, others};
}

// Rows that came over the rail go on to the ranks of the domain, and seldom stay with the forwarder.
Traffic forwardedTraffic(const Workload& w, int inDomain, const Destinations& to) {
  const double peers = w.ranks / inDomain - 1, railRows = w.tokens * to.remoteDomains;
  const double forwarded = w.tokens * to.remoteRanks * (inDomain - 1) / inDomain;
  const double chunks = peers > 0 ? std::ceil(railRows / peers / kChunkRows) : 0;
  return {railRows, w.tokens * to.neighbours + forwarded, chunks * peers, peers};
}

// The last chunk is forwarded after the rail has finished.
double lastChunkUs(const Machine& machine, const Workload& w, std::int64_t bytes) {
  const Destinations to = destinationsOf(w, machine.domainRanks);
  if (to.remoteDomains <= 0) return 0;
  const double rows = std::min<double>(kChunkRows, w.tokens) * to.remoteRanks / to.remoteDomains;
  return rows * static_cast<double>(bytes) / machine.nvlinkGBs * 1e-3;
}

double latencyUs(const Machine& machine, const Workload& w, Copies copies, std::int64_t bytes) {
  if (w.ranks <= machine.domainRanks) return machine.startUs;
  const double direct = machine.startUs + machine.railLatencyUs;
  return copies == Copies::perDomain ? direct + machine.forwardLatencyUs + lastChunkUs(machine, w, bytes) : direct;
}

// Calls and doorbells for one peer (docs/internals/rdma.md, "Who posts"). Combines post a block of rows: LL one, HT one
// for each wave. Two of HT's words do not go with a wave.
constexpr double kPutsOfCall = 32, kPutsUnrung = 128, kWaves = 8, kOtherWords = 2;

double callsUs(const Calls& calls, const Traffic& traffic, Copies copies, Operation operation) {
  if (traffic.peers <= 0) return 0;
  const bool rails = copies == Copies::perDomain;
  const double waves = rails ? kWaves : 1, rows = traffic.railRows / traffic.peers / waves;
  const bool blocks = operation == Operation::combine;
  const double words = waves + (rails ? kOtherWords : 0);
  const double puts = waves * (blocks ? 1 : std::ceil(rows / kPutsOfCall));
  const double rings = words + (blocks ? 0 : waves * std::floor(rows / kPutsUnrung));
  const double turns = std::ceil(traffic.peers / calls.warps);
  return turns * ((puts + words) * calls.callUs + rings * calls.ringUs);
}

double postingUs(const Machine& machine, const Traffic& traffic, Copies copies, Operation operation) {
  if (machine.calls.callUs == 0) return traffic.messages() * machine.postUs;
  return callsUs(machine.calls, traffic, copies, operation);
}

}  // namespace

const char* nameOf(Bound bound) {
  switch (bound) {
    case Bound::latency:
      return "latency";
    case Bound::nvlink:
      return "NVLink";
    case Bound::rail:
      return "rail";
    case Bound::posting:
      return "posting";
  }
  return "?";
}

Traffic trafficOf(const Workload& w, int domainRanks, Copies copies, Operation operation) {
  const int inDomain = std::min(domainRanks, w.ranks);
  if (copies == Copies::perExpert) {
    return directTraffic(w, inDomain, w.topk, static_cast<double>(w.expertCount()) / w.ranks);
  }
  const Destinations to = destinationsOf(w, domainRanks);
  if (copies == Copies::perDomain) return forwardedTraffic(w, inDomain, to);
  return directTraffic(w, inDomain, to.ranks, operation == Operation::dispatch ? kLlDispatchWords : kLlCombineWords);
}

Estimate estimate(const Machine& machine, const Workload& w, Copies copies, Operation operation) {
  return estimate(machine, w, copies, operation, operation == Operation::dispatch ? w.dispatchRow : w.combineRow);
}

Estimate estimate(const Machine& machine, const Workload& w, Copies copies, Operation operation, RowType row) {
  check(machine, w);
  const std::int64_t bytes = rowBytes(row, w.hidden);
  Estimate e;
  e.traffic = trafficOf(w, machine.domainRanks, copies, operation);
  e.railBytes = e.traffic.railRows * static_cast<double>(bytes);
  e.nvlinkBytes = e.traffic.nvlinkRows * static_cast<double>(bytes);
  e.latencyUs = latencyUs(machine, w, copies, bytes);
  e.railUs = e.railBytes / machine.railGBs * 1e-3;
  e.nvlinkUs = e.nvlinkBytes / machine.nvlinkGBs * 1e-3;
  e.postUs = postingUs(machine, e.traffic, copies, operation);
  const std::pair<double, Bound> resources[] = {
      {e.nvlinkUs, Bound::nvlink}, {e.railUs, Bound::rail}, {e.postUs, Bound::posting}};
  const auto slowest = *std::max_element(std::begin(resources), std::end(resources));
  e.bound = slowest.first > e.latencyUs ? slowest.second : Bound::latency;
  e.us = e.latencyUs + slowest.first;
  return e;
}

}  // namespace moe::model
