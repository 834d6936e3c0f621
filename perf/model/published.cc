#include "perf/model/published.h"

#include <fmt/format.h>

#include "perf/model/destinations.h"
#include "perf/model/estimate.h"

namespace moe::model {
namespace {

struct Row {
  int ranks;
  double dispatch, combine;  // us, or GB/s if it is a Bandwidth
};

// A system's cases. They differ in their ranks and in the row types of the two operations.
struct System {
  std::string name;
  std::string mode;
  Machine machine;
  Workload workload;
  Copies copies;
  int expertsPerRank = 0;      // 0: the workload's experts
  double startCombineUs = -1;  // if it differs from dispatch's
};

Workload workloadOf(const System& system, int ranks) {
  Workload w = system.workload;
  w.ranks = ranks;
  if (system.expertsPerRank > 0) w.experts = system.expertsPerRank * ranks;
  return w;
}

double modelUs(const System& system, int ranks, bool combine) {
  Machine machine = system.machine;
  if (combine && system.startCombineUs >= 0) machine.startUs = system.startCombineUs;
  const Workload w = workloadOf(system, ranks);
  return estimate(machine, w, system.copies, combine ? Operation::combine : Operation::dispatch).us;
}

// The start is the only fitted number. It is fitted to the case of one machine, where nothing crosses a rail.
System fitStart(System system, const Row& oneMachine) {
  system.machine.startUs = 0;
  system.startCombineUs = 0;
  const double combine = oneMachine.combine - modelUs(system, oneMachine.ranks, true);
  system.machine.startUs = oneMachine.dispatch - modelUs(system, oneMachine.ranks, false);
  system.startCombineUs = combine;
  return system;
}

void addTimes(std::vector<Comparison>& to, const System& system, const std::vector<Row>& rows) {
  const auto of = [&](const Row& row, bool combine) {
    const double us = combine ? row.combine : row.dispatch;
    return Measured{fmt::format("{:.0f} us", us), us, modelUs(system, row.ranks, combine)};
  };
  for (const Row& row : rows) to.push_back({system.name, system.mode, row.ranks, of(row, false), of(row, true)});
}

// HT bandwidths count a row once per domain (or per rank, within one domain), the sender's own included.
double countedBytes(const System& system, int ranks, bool combine) {
  const Workload w = workloadOf(system, ranks);
  const Destinations d = destinationsOf(w, system.machine.domainRanks);
  const double copies = ranks <= system.machine.domainRanks ? d.ranks : d.domains;
  return w.tokens * copies * static_cast<double>(rowBytes(combine ? w.combineRow : w.dispatchRow, w.hidden));
}

Measured bandwidthOf(const System& system, const Row& row, bool combine) {
  const double rate = combine ? row.combine : row.dispatch;
  return {fmt::format("{:.0f} GB/s", rate), countedBytes(system, row.ranks, combine) / rate * 1e-3,
          modelUs(system, row.ranks, combine)};
}

void addBandwidths(std::vector<Comparison>& to, const System& system, const std::vector<Row>& rows) {
  for (const Row& row : rows) {
    to.push_back(
        {system.name, system.mode, row.ranks, bandwidthOf(system, row, false), bandwidthOf(system, row, true)});
  }
}

Machine withNvlink(double gigabytesPerSecond) {
  Machine machine = withoutCalls(nodesOf8());
  machine.nvlinkGBs = gigabytesPerSecond;
  return machine;
}

// All traffic goes through the adapter, including that between GPUs of one machine.
System overRailsOnly(System system, const std::string& name) {
  system.name = name;
  system.machine.domainRanks = 1;
  return system;
}

Workload bf16(Workload w) {
  w.dispatchRow = RowType::bf16;
  return w;
}

void addLowLatency(std::vector<Comparison>& to) {
  Workload w;
  w.experts = 256;
  const System v1 = fitStart({"DeepEP V1", "LL", withNvlink(160), w, Copies::perExpert}, {8, 77, 114});
  addTimes(to, v1, {{16, 118, 195}, {32, 155, 273}, {64, 173, 314}});
  addTimes(to, overRailsOnly(v1, "DeepEP V1, rails only"),
           {{16, 173, 329}, {32, 182, 350}, {64, 186, 353}, {128, 192, 369}, {256, 194, 360}});
  const System nccl =
      fitStart({"NCCL EP", "LL", withoutCalls(nodesOf8()), bf16(w), Copies::perExpert}, {8, 65.34, 77.19});
  addTimes(to, nccl, {{16, 194.70, 211.63}, {32, 257.79, 308.70}, {64, 301.97, 352.99}});
  addTimes(to, overRailsOnly(nccl, "NCCL EP, rails only"),
           {{16, 261.23, 290.20}, {32, 294.30, 336.54}, {64, 328.55, 388.26}});
}

void addHighThroughput(std::vector<Comparison>& to) {
  Workload w;
  w.tokens = 4096;
  w.experts = 256;
  Workload limited = w;
  limited.domainLimit = 4;
  addBandwidths(to, {"DeepEP V1", "HT", withNvlink(160), limited, Copies::perDomain},
                {{16, 43, 43}, {32, 58, 57}, {64, 51, 50}});
  Workload long8k = w;
  long8k.tokens = 8192;
  addBandwidths(to, {"DeepEP V2", "HT", withoutCalls(nodesOf8()), long8k, Copies::perDomain},
                {{16, 90, 81}, {32, 61, 61}});
  addBandwidths(to, {"HybridEP", "HT", withoutCalls(nodesOf8()), bf16(w), Copies::perDomain, 8},
                {{16, 71.71, 62.95}, {32, 57.69, 57.46}, {64, 49.97, 49.77}});
  System fabric{"HybridEP, GB200", "HT", withoutCalls(fabricsOf72()), bf16(w), Copies::perDomain, 8};
  fabric.machine.nvlinkGBs = 764.03 * 7 / 8;  // measured among its own 8 ranks, in dispatch
  addBandwidths(to, fabric, {{16, 706.95, 666.26}, {32, 642.23, 605.15}, {36, 632.31, 596.99}});
}

// One domain of 4 ranks. The time of a pair of dispatch and combine stands in the dispatch column.
void addOurs(std::vector<Comparison>& to) {
  Workload w;
  w.ranks = 4;
  w.experts = 256;
  const auto add = [&](const char* mode, Copies copies, int tokens, double us) {
    w.tokens = tokens;
    const double model = 2 * estimate(nodesOf8(), w, copies, Operation::combine).us;
    to.push_back(
        {fmt::format("moecomm, pair, {} tokens", tokens), mode, 4, {fmt::format("{:g} us", us), us, model}, {}});
  };
  add("LL", Copies::perRank, 8, 15.6);
  add("LL", Copies::perRank, 32, 24.7);
  add("LL", Copies::perRank, 128, 47.7);
  add("LL", Copies::perRank, 512, 136);
  add("HT", Copies::perDomain, 4096, 981);
}

}  // namespace

std::vector<Comparison> comparisons() {
  std::vector<Comparison> all;
  addLowLatency(all);
  addHighThroughput(all);
  addOurs(all);
  return all;
}

}  // namespace moe::model
