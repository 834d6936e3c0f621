#include "perf/moe_perf/comm_config.h"

#include <algorithm>
#include <cstdint>

#include "perf/moe_perf/exchange.h"
#include "perf/moe_perf/plan.h"
#include "perf/moe_perf/session.h"
#include "perf/moe_perf/soak_plan.h"
#include "perf/payload/device.h"

namespace moe::perf {
namespace {

// The window memory of all sessions of the largest case.
std::int64_t windowBytesMax(const Options& options, int nranks) {
  std::int64_t bytes = 0;
  for (int session = 0; session < options.sessions(); ++session) {
    std::int64_t rows = 0;
    for (const int tokens : options.tokens) {
      for (int version = 0; version < kVersions; ++version) {
        const Load load = evenLoad(nranks, tokens);
        rows = std::max(rows, makePlan(options, sessionSeed(options, session), load, version, 0).layoutRowsMax);
      }
    }
    bytes += Session::windowBytes(options, rows, nranks);
  }
  return bytes;
}

// A library that may choose the mode gets LL buffers for every number of tokens where LL can be the better choice.
// --tune measures LL with all of them.
void sizeForCases(const Options& options, int nranks, moeConfig_t& config) {
  constexpr int kLlTokensOfAuto = 1024;
  const int tokens = std::max(options.tokensMax(), 1);
  (options.mode == moeModeLl ? config.llTokensMax : config.tokensMax) = tokens;
  if (options.mode == moeModeAuto) {
    config.llTokensMax = options.tune.empty() ? std::min(tokens, kLlTokensOfAuto) : tokens;
  }
  config.rowBytesMax = std::max(options.rowBytes(), options.combineRowBytes());
  config.sideBytesMax = options.sideBytes();
  const std::int64_t windowBytes = windowBytesMax(options, nranks);
  if (options.window != 0) {
    const bool prepares = options.expertMajor() || options.wire != Wire::row;  // combine, one row per token
    config.stagingRows = prepares ? 0 : -1;
    config.heapBytes = windowBytes;
  } else {
    config.stagingRows = windowBytes / std::max(options.rowBytes(), 1) + 1;
  }
}

}  // namespace

moeConfig_t makeConfig(const Options& options, int nranks, int localRank) {
  moeConfig_t config = MOE_CONFIG_INITIALIZER;
  const int gpus = options.backend == moeBackendHost ? 0 : gpuCount();
  config.backend = options.backend;
  config.device = gpus > 0 ? localRank % gpus : -1;
  config.modes = options.mode;
  config.topkMax = options.topk;
  config.expertsMax = options.experts;
  config.timeoutMs = options.timeoutMs;
  config.sms = options.sms;
  config.domainSize = options.domainSize;
  config.transport = options.transport;
  options.soak > 0 ? sizeForSoak(options, nranks, config) : sizeForCases(options, nranks, config);
  return config;
}

}  // namespace moe::perf
