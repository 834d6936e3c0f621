#include "perf/model/machine.h"

#include <fmt/format.h>

#include <stdexcept>

namespace moe::model {
namespace {

// docs/internals/notebook.md, 4 x H200: half of an LL pair of one token; HT dispatch of 159.2 MB in 489 us; half a
// round trip.
constexpr double kStartUs = 7.2, kNvlinkGBs = 326, kForwardLatencyUs = 0.64;
// Published: shmem_put_bw between nodes; half a round trip of NCCL's GPU-initiated put with signal.
constexpr double kRailGBs = 47, kRailLatencyUs = 8.35;
// Published: 622 and 586 GB/s to other ranks by HybridEP on 32 ranks of a GB200 fabric.
constexpr double kFabricGBs = 600;
// Assumed for the GPUs of others, and published: 1024 messages in 478 us by the proxies of MSCCL++ EP.
constexpr double kIbgdaPostUs = 0.05, kProxyPostUs = 0.47;
// Counted in the code of the LL dispatch for sm_90 (tests/codegen/kernels.toml): what a warp issues from one posting
// call to the next, within the call, and in addition to ring. Also how many of these wait for memory at system scope.
constexpr int kLoopInstructions = 51, kCallInstructions = 262, kCallWaits = 5;
constexpr int kRingInstructions = 329 - kCallInstructions, kRingWaits = 14 - kCallWaits;
// Assumed: the time of each for a warp that runs alone (9 cycles; a flag's way over NVLink), and the number of warps
// that post at once.
constexpr double kInstructionUs = 0.005, kWaitUs = kForwardLatencyUs;
constexpr int kPostingWarps = 512;

void require(bool holds, const std::string& sentence) {
  if (!holds) throw std::invalid_argument(sentence);
}

double postUs(Transport transport) {
  return transport == Transport::proxy ? kProxyPostUs : kIbgdaPostUs;
}

Calls ownCalls() {
  return {(kLoopInstructions + kCallInstructions) * kInstructionUs + kCallWaits * kWaitUs,
          kRingInstructions * kInstructionUs + kRingWaits * kWaitUs, kPostingWarps};
}

}  // namespace

int Workload::expertCount() const {
  return experts != 0 ? experts : (256 + ranks - 1) / ranks * ranks;
}

std::int64_t rowBytes(RowType type, int hidden) {
  if (type == RowType::bf16) return std::int64_t{2} * hidden;
  const std::int64_t bytes = hidden + std::int64_t{4} * ((hidden + 127) / 128);
  return (bytes + 15) / 16 * 16;
}

Machine nodesOf8(Transport transport) {
  Machine machine;
  machine.name = "nodes of 8";
  machine.domainRanks = 8;
  machine.nvlinkGBs = kNvlinkGBs;
  machine.railGBs = kRailGBs;
  machine.startUs = kStartUs;
  machine.railLatencyUs = kRailLatencyUs;
  machine.forwardLatencyUs = kForwardLatencyUs;
  machine.postUs = postUs(transport);
  if (transport == Transport::ibgda) machine.calls = ownCalls();
  return machine;
}

Machine withoutCalls(Machine machine) {
  machine.calls = {};
  return machine;
}

Machine fabricsOf72(Transport transport) {
  Machine machine = nodesOf8(transport);
  machine.name = "fabrics of 72";
  machine.domainRanks = 72;
  machine.nvlinkGBs = kFabricGBs;
  return machine;
}

void check(const Machine& machine, const Workload& w) {
  require(w.ranks >= 1 && machine.domainRanks >= 1, "there must be at least one rank, and one in each domain");
  require(w.ranks <= machine.domainRanks || w.ranks % machine.domainRanks == 0,
          fmt::format("{} ranks do not divide into domains of {}", w.ranks, machine.domainRanks));
  require(w.topk >= 1 && w.topk <= 32 && w.topk <= w.expertCount(),
          fmt::format("top-{} of {} experts: 1 to 32, and no more than there are", w.topk, w.expertCount()));
  require(w.tokens >= 1 && w.hidden >= 1, "tokens and columns must be at least 1");
  const int domains = w.ranks <= machine.domainRanks ? 1 : w.ranks / machine.domainRanks;
  require(
      w.domainLimit == 0 || w.expertCount() % domains == 0,
      fmt::format("a limit of domains needs domains of equal size: {} experts, {} domains", w.expertCount(), domains));
  require(machine.nvlinkGBs > 0 && machine.railGBs > 0, "rates must be more than 0");
}

}  // namespace moe::model
