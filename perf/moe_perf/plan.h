// The rows that must arrive, and their places. The layouts are computed from the routes of all ranks, independently of
// the library, and the checks compare the two.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "perf/moe_perf/options.h"
#include "perf/moe_perf/routing.h"
#include "perf/payload/work.h"

namespace moe::perf {

// Routes alternate between two versions, so that rows change places from iteration to iteration.
inline constexpr int kVersions = 2;

// How many tokens the ranks send.
struct Load {
  int tokensMax;                                   // the handle's; at least one
  std::array<std::vector<int>, kVersions> tokens;  // of each rank

  int nranks() const { return static_cast<int>(tokens[0].size()); }
  int at(int version, int rank) const {
    return tokens[static_cast<std::size_t>(version)][static_cast<std::size_t>(rank)];
  }
};

// Every rank sends the same number of tokens, in both versions.
Load evenLoad(int nranks, int tokens);

struct Plan {
  // This rank as a source.
  Route route;
  std::vector<Entry> entries;              // by token, then by rank, then in top-k order, without unused ones
  std::vector<std::int32_t> entryOffsets;  // [tokens + 1]

  // This rank as a destination, in the order of RowSpec.
  std::vector<RowSpec> specs;
  std::vector<Entry> specEntries;
  std::vector<std::int32_t> specExperts;    // [specs][topk] local expert or -1; empty for EXPERT_MAJOR layouts
  std::vector<float> specWeights;           // [specs][topk], or [specs] for EXPERT_MAJOR layouts
  std::vector<std::int32_t> specSources;    // [specs] source * tokensMax + token
  std::vector<std::int32_t> expertOffsets;  // [local experts + 1], EXPERT_MAJOR
  std::vector<std::int32_t> rowsPerRank;
  std::vector<std::int32_t> rowsPerExpert;
  std::int64_t rows = 0;        // arriving tokens, each counted once
  std::int64_t layoutRows = 0;  // rows that the output must hold

  // Over all ranks: all (token, rank) pairs, and those with another rank than the token's own.
  std::int64_t logicalRowsAll = 0;
  std::int64_t remoteRowsAll = 0;
  std::int64_t layoutRowsMax = 0;  // the largest layoutRows of any rank

  int tokens() const { return static_cast<int>(entryOffsets.size()) - 1; }
};

// `seed` is the session's.
Plan makePlan(const Options& options, std::uint64_t seed, const Load& load, int version, int rank);

}  // namespace moe::perf
