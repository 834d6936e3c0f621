#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <numeric>

#include "comm/config/config.h"
#include "comm/handle/call_checks.h"
#include "comm/handle/handle_config.h"
#include "comm/handle/mode_choice.h"

namespace moe {
namespace {

// The number of processors that the ranks of each host have, from the cards of all ranks.
Processors processorsOf(const std::vector<Peer>& peers) {
  struct Host {
    const bootstrap::HostIdentity* identity;
    ProcessorMask processors;
    int ranks;
    bool known;
  };
  std::vector<Host> hosts;
  for (const Peer& peer : peers) {
    auto host =
        std::find_if(hosts.begin(), hosts.end(), [&](const Host& h) { return h.identity->sameKernel(peer.card.host); });
    if (host == hosts.end()) host = hosts.insert(hosts.end(), {&peer.card.host, {}, 0, true});
    ++host->ranks;
    bool known = false;
    for (std::size_t i = 0; i < host->processors.size(); ++i) {
      host->processors[i] |= peer.card.processors[i];
      known = known || peer.card.processors[i] != 0;
    }
    host->known = host->known && known;
  }
  Processors found = Processors::spare;
  for (const Host& host : hosts) {
    const int count = std::accumulate(host.processors.begin(), host.processors.end(), 0,
                                      [](int sum, std::uint64_t word) { return sum + std::popcount(word); });
    found = scarcer(found, host.ranks, host.known ? count : 0);
  }
  return found;
}

// `c`: the shape in which the handle works.
bool usesLowLatency(const moeHandleConfig_t& config, const CommShape& c, const Comm& comm, const Backend& backend) {
  if (config.mode != moeModeAuto) return config.mode == moeModeLl;
  if (!c.ll || !c.ht) return c.ll;
  const bool host = backend.kind() == moeBackendHost;
  // A handle for this rank alone waits for nobody.
  const Processors processors = host && c.nranks > 1 ? processorsOf(comm.peers()) : Processors::spare;
  const ModeSetup setup = setupOf(host, c.domains(), processors);
  const ModeLimit limit = modeLimit(comm.tunedLimits(), setup, static_cast<Layout>(config.layout));
  return chooseMode(limit, config.tokensMax, c.rowBytesMax, c.nranks, c.llTokensMax) == moeModeLl;
}

}  // namespace

HandleShape handleShape(const moeHandleConfig_t& config, const Comm& comm, const Backend& backend) {
  const bool localOnly = config.localOnly != 0;
  const CommShape c = localOnly ? localShape(comm.shape()) : comm.shape();
  requireRange("config.experts", config.experts, 1, c.expertsMax);
  requireRange("config.topk", config.topk, 1, c.topkMax);
  requireRange("config.layout", config.layout, moeLayoutFlat, moeLayoutRankMajor);
  requireRange("config.mode", config.mode, moeModeAuto, moeModeLl);
  requireRange("config.expertAlignment", config.expertAlignment, 0, 1 << 16);
  requireRange("config.indexType", config.indexType, moeIndexInt32, moeIndexInt64);
  requireRange("config.arrivals", config.arrivals, 0, 1);
  requireRange("config.duplicates", config.duplicates, moeDuplicatesFail, moeDuplicatesMerge);
  requireRange("config.statistics", config.statistics, 0, 1);
  requireRange("config.combineWeights", config.combineWeights, 0, 1);
  requireRange("config.expertCounts", config.expertCounts, 0, 1);
  HandleShape shape;
  shape.lowLatency = usesLowLatency(config, c, comm, backend);
  if (shape.lowLatency ? !c.ll : !c.ht) {
    refuse(fmt::format("config.mode is {}, but the communicator was made with config.modes {}",
                       shape.lowLatency ? "LL" : "HT", c.ll ? "LL" : "HT"));
  }
  const int limit = shape.lowLatency ? c.llTokensMax : c.tokensMax;
  requireRange("config.tokensMax", config.tokensMax, 0, limit);
  const ExpertMap all(config.experts, comm.nranks());
  shape.map = localOnly ? ExpertMap(all.count(comm.rank()), 1) : all;
  shape.named = config.experts;
  shape.rank = localOnly ? 0 : comm.rank();
  shape.domains = c.domains();
  shape.topk = config.topk;
  shape.layout = static_cast<Layout>(config.layout);
  shape.tokensMax = config.tokensMax > 0 ? config.tokensMax : limit;
  shape.waves = htWavesOf(c.domains(), c.tokensMax);
  shape.alignment = std::max(config.expertAlignment, 1);
  shape.wideIndex = config.indexType == moeIndexInt64;
  shape.merges = config.duplicates == moeDuplicatesMerge;
  shape.routeWarpsMax = backend.routeWarpsMax();
  shape.tableBlocks = backend.tableBlocksMax();
  shape.countsStay = shape.lowLatency && backend.isFarFromHost();
  // Includes padding, so that every row number fits 31 bits.
  requireRange("the rows that may arrive (nranks * tokensMax)", allTokensMax(shape), 0, Limits::kArrivingRows);
  requireRange("config.rowsBudget", config.rowsBudget, 0, allTokensMax(shape));
  shape.rowsBudget = config.rowsBudget;
  const bool expertRows = shape.layout == Layout::expertMajor || shape.layout == Layout::expertMajorPadded;
  if (config.arrivals != 0 && !expertRows) {
    refuse("config.arrivals is 1, which needs an EXPERT_MAJOR layout: in other layouts a row has no single expert");
  }
  shape.arrivals = config.arrivals != 0;
  shape.combineWeights = config.combineWeights != 0;
  shape.expertCounts = config.expertCounts != 0;
  requireRange("the rows of the layout", layoutRowsMax(shape), 0, INT32_MAX);
  return shape;
}

}  // namespace moe
