// Logs what a communicator consists of, so that users can find out later why it is slow or ignores a variable.
#include <fmt/format.h>

#include <algorithm>
#include <string_view>

#include "base/nearest_name.h"
#include "comm/communicator/comm.h"
#include "comm/config/config_table.h"

namespace moe {
namespace {

void warnOfUnknown(const Log& log, std::span<const std::string> names) {
  const std::vector<std::string> known = knownVariables();
  std::vector<std::string> knownEnds;
  for (const std::string& name : known) {
    if (name.starts_with(kPrefix)) knownEnds.push_back(name.substr(kPrefix.size()));
  }
  for (const std::string& name : names) {
    if (std::find(known.begin(), known.end(), name) != known.end()) continue;
    // The common prefix would make any two names look alike.
    const std::string nearest = nearestName(std::string_view(name).substr(kPrefix.size()), knownEnds);
    const std::string advice = nearest.empty() ? "" : fmt::format("; did you mean {}{}?", kPrefix, nearest);
    log.write(moeLogWarn, "init", "the environment has {}, which moecomm {}.{} does not know{}", name,
              MOE_VERSION_MAJOR, MOE_VERSION_MINOR, advice);
  }
}

// "1, 3-5"
std::string ranges(const std::vector<int>& ranks) {
  std::string text;
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    const std::size_t first = i;
    while (i + 1 < ranks.size() && ranks[i + 1] == ranks[i] + 1) ++i;
    if (!text.empty()) text += ", ";
    text += std::to_string(ranks[first]);
    if (i > first) text += fmt::format("-{}", ranks[i]);
  }
  return text;
}

}  // namespace

void logEnvironment(const Log& log, const Config& config, std::span<const std::string> names) {
  if (log.enabled(moeLogWarn)) warnOfUnknown(log, names);
  log.write(moeLogInfo, "init", "version {}.{}.{}; from the environment: {}", MOE_VERSION_MAJOR, MOE_VERSION_MINOR,
            MOE_VERSION_PATCH,
            config.fromEnvironment.empty() ? "nothing" : fmt::format("{}", fmt::join(config.fromEnvironment, ", ")));
}

void warnOfStaging(const Log& log, const CommShape& shape, const Config& config) {
  constexpr int kManyRanks = 64;
  constexpr std::int64_t kMuch = std::int64_t{1} << 30;
  const std::int64_t rows = shape.stagingRows * shape.stagingAreas;
  const std::int64_t bytes = rows * (shape.rowBytesMax + shape.sideBytesMax);
  if (config.stagingRows != 0 || shape.nranks < kManyRanks || bytes < kMuch) return;
  log.write(moeLogWarn, "init",
            "the staging area takes {} MiB on each rank, for the case that all {} ranks send all of their {} tokens to "
            "one rank; config.stagingRows or MOECOMM_STAGING_ROWS says how many rows are enough, and -1 does without",
            bytes >> 20, shape.nranks, shape.tokensMax);
}

std::string describePeers(const Comm& comm) {
  std::string text;
  for (int kind = moeTransportDirect; kind <= moeTransportIbgda; ++kind) {
    std::vector<int> ranks;
    for (int rank = 0; rank < comm.nranks(); ++rank) {
      if (rank != comm.rank() && comm.transportTo(rank) == kind) ranks.push_back(rank);
    }
    if (ranks.empty()) continue;
    if (!text.empty()) text += ", ";
    text += fmt::format("{} ({})", ranges(ranks), nameOfTransport(kind));
  }
  return text.empty() ? "none" : text;
}

}  // namespace moe
