#include "perf/moe_perf/plan.h"

#include <algorithm>
#include <cstddef>

#include "moecomm.h"

namespace moe::perf {
namespace {

struct Context {
  const Options& options;
  const Load& load;
  Experts experts;
  int version;
  int rank;

  int tokensOf(int source) const { return load.at(version, source); }
  std::int64_t slots() const { return static_cast<std::int64_t>(experts.nranks) * load.tokensMax; }

  // The used entries of one token, by rank, then in top-k order.
  std::vector<Entry> entriesOf(const Route& route, int token) const {
    std::vector<Entry> found;
    const std::size_t base = static_cast<std::size_t>(token) * static_cast<std::size_t>(options.topk);
    for (std::size_t i = base; i < base + static_cast<std::size_t>(options.topk); ++i) {
      const std::int32_t expert = route.experts[i];
      if (expert >= 0) found.push_back({expert, route.weights[i], experts.rankOf(expert)});
    }
    std::stable_sort(found.begin(), found.end(), [](const Entry& a, const Entry& b) { return a.rank < b.rank; });
    return found;
  }
};

void planSource(const Context& context, Plan& plan) {
  plan.entryOffsets.push_back(0);
  for (int token = 0; token < context.tokensOf(context.rank); ++token) {
    const std::vector<Entry> found = context.entriesOf(plan.route, token);
    plan.entries.insert(plan.entries.end(), found.begin(), found.end());
    plan.entryOffsets.push_back(static_cast<std::int32_t>(plan.entries.size()));
  }
}

// The tokens that come to this rank, by source rank, then by source token. Each has one spec, without a row number yet.
void collectArrivals(const Context& context, const std::vector<Route>& routes, Plan& plan) {
  for (int source = 0; source < context.experts.nranks; ++source) {
    std::int32_t fromSource = 0;
    for (int token = 0; token < context.tokensOf(source); ++token) {
      auto found = context.entriesOf(routes[static_cast<std::size_t>(source)], token);
      std::erase_if(found, [&](const Entry& entry) { return entry.rank != context.rank; });
      if (found.empty()) continue;
      plan.specs.push_back({0, source, token, static_cast<std::int32_t>(plan.specEntries.size()),
                            static_cast<std::int32_t>(found.size())});
      plan.specEntries.insert(plan.specEntries.end(), found.begin(), found.end());
      fromSource += 1;
    }
    plan.rowsPerRank.push_back(fromSource);
  }
  plan.rows = static_cast<std::int64_t>(plan.specs.size());
  plan.rowsPerExpert.resize(static_cast<std::size_t>(context.experts.onRank(context.rank)));
  for (const Entry& entry : plan.specEntries) {
    plan.rowsPerExpert[static_cast<std::size_t>(entry.expert - context.experts.first(context.rank))] += 1;
  }
}

// FLAT: rows without gaps. RANK_MAJOR: each source's rows at the start of its block.
void placeTokenRows(const Context& context, Plan& plan) {
  const bool flat = context.options.layout == moeLayoutFlat;
  std::int64_t row = 0;
  std::int32_t source = -1;
  for (RowSpec& spec : plan.specs) {
    if (!flat && spec.source != source) row = static_cast<std::int64_t>(spec.source) * context.load.tokensMax;
    source = spec.source;
    spec.row = row++;
  }
  plan.layoutRows = flat ? plan.rows : context.slots();
}

// Metadata of layouts with one row per token: every top-k entry, with -1 for experts of other ranks.
void describeTokenRows(const Context& context, const std::vector<Route>& routes, Plan& plan) {
  for (const RowSpec& spec : plan.specs) {
    const Route& route = routes[static_cast<std::size_t>(spec.source)];
    for (int k = 0; k < context.options.topk; ++k) {
      const auto i = static_cast<std::size_t>(spec.token) * static_cast<std::size_t>(context.options.topk) +
                     static_cast<std::size_t>(k);
      const bool here = route.experts[i] >= 0 && context.experts.rankOf(route.experts[i]) == context.rank;
      plan.specExperts.push_back(here ? route.experts[i] - context.experts.first(context.rank) : -1);
      plan.specWeights.push_back(here ? route.weights[i] : 0.0F);
    }
  }
}

// Turns one spec per token into one per (token, expert), grouped by expert.
void placeExpertRows(const Context& context, Plan& plan) {
  const int first = context.experts.first(context.rank);
  const auto localExperts = static_cast<int>(plan.rowsPerExpert.size());
  const bool padded = context.options.layout == moeLayoutExpertMajorPadded;
  std::vector<std::int64_t> next;
  plan.expertOffsets.push_back(0);
  for (int expert = 0; expert < localExperts; ++expert) {
    next.push_back(padded ? expert * context.slots() : plan.expertOffsets.back());
    plan.expertOffsets.push_back(plan.expertOffsets.back() + plan.rowsPerExpert[static_cast<std::size_t>(expert)]);
  }
  plan.layoutRows = padded ? localExperts * context.slots() : plan.expertOffsets.back();
  std::vector<RowSpec> specs;
  for (const RowSpec& token : plan.specs) {
    for (std::int32_t i = token.entryBegin; i < token.entryBegin + token.entryCount; ++i) {
      const Entry& entry = plan.specEntries[static_cast<std::size_t>(i)];
      specs.push_back({next[static_cast<std::size_t>(entry.expert - first)]++, token.source, token.token, i, 1});
      plan.specWeights.push_back(entry.weight);
    }
  }
  plan.specs = std::move(specs);
}

void countAllRanks(const Context& context, const std::vector<Route>& routes, Plan& plan) {
  const auto nranks = static_cast<std::size_t>(context.experts.nranks);
  std::vector<std::int64_t> tokenRows(nranks);
  std::vector<std::int64_t> expertRows(nranks);
  for (std::size_t source = 0; source < nranks; ++source) {
    for (int token = 0; token < context.tokensOf(static_cast<int>(source)); ++token) {
      std::size_t previous = nranks;
      for (const Entry& entry : context.entriesOf(routes[source], token)) {
        const auto rank = static_cast<std::size_t>(entry.rank);
        expertRows[rank] += 1;
        if (rank == previous) continue;
        previous = rank;
        tokenRows[rank] += 1;
        plan.logicalRowsAll += 1;
        plan.remoteRowsAll += rank == source ? 0 : 1;
      }
    }
  }
  switch (context.options.layout) {
    case moeLayoutFlat:
      plan.layoutRowsMax = *std::max_element(tokenRows.begin(), tokenRows.end());
      break;
    case moeLayoutExpertMajor:
      plan.layoutRowsMax = *std::max_element(expertRows.begin(), expertRows.end());
      break;
    case moeLayoutRankMajor:
      plan.layoutRowsMax = context.slots();
      break;
    default:
      plan.layoutRowsMax = context.slots() * context.experts.onRank(0);
      break;
  }
}

}  // namespace

Load evenLoad(int nranks, int tokens) {
  Load load{std::max(tokens, 1), {}};
  load.tokens.fill(std::vector<int>(static_cast<std::size_t>(nranks), tokens));
  return load;
}

Plan makePlan(const Options& options, std::uint64_t seed, const Load& load, int version, int rank) {
  const Context context{options, load, {options.experts, load.nranks()}, version, rank};
  const std::uint64_t routeSeed = mix(seed * kVersions + static_cast<std::uint64_t>(version) + 1);
  const std::uint64_t step = options.seed * kVersions + static_cast<std::uint64_t>(version);
  std::vector<Route> routes;
  for (int source = 0; source < load.nranks(); ++source) {
    routes.push_back(makeRoute(options, routeSeed, load.nranks(), source, context.tokensOf(source), step));
  }
  Plan plan;
  plan.route = routes[static_cast<std::size_t>(rank)];
  planSource(context, plan);
  collectArrivals(context, routes, plan);
  if (options.expertMajor()) {
    placeExpertRows(context, plan);
  } else {
    placeTokenRows(context, plan);
    describeTokenRows(context, routes, plan);
  }
  for (const RowSpec& spec : plan.specs) plan.specSources.push_back(spec.source * context.load.tokensMax + spec.token);
  countAllRanks(context, routes, plan);
  return plan;
}

}  // namespace moe::perf
