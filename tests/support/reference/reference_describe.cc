#include "support/reference/reference_describe.h"

#include <set>

#include "support/base/index.h"

namespace moe::test {

ReferenceSent referenceSent(const ReferenceRoute& route, int rank) {
  const RouteConfig& config = route.config;
  const RouteInput& input = route.inputs[at(rank)];
  ReferenceSent sent;
  sent.perRank.assign(at(config.nranks), 0);
  sent.perDomain.assign(at(config.domainOf(config.nranks - 1) + 1), 0);
  sent.perExpert.assign(at(config.experts), 0);
  sent.toRank.assign(at(std::int64_t{input.tokens} * config.nranks), 0);
  for (int token = 0; token < input.tokens; ++token) {
    std::set<int> ranks, domains;
    for (int k = 0; k < config.topk; ++k) {
      const int expert = input.experts[at(token * config.topk + k)];
      if (expert < 0) continue;
      ++sent.perExpert[at(expert)];
      ranks.insert(rankOfExpert(config, expert));
      domains.insert(config.domainOf(rankOfExpert(config, expert)));
    }
    for (const int to : ranks) ++sent.perRank[at(to)], sent.toRank[at(token * config.nranks + to)] = 1;
    for (const int domain : domains) ++sent.perDomain[at(domain)];
  }
  return sent;
}

std::vector<DescribedRow> describedRows(const ReferenceRoute& route, int rank) {
  std::vector<DescribedRow> rows;
  for (const ArrivedToken& token : route.arrivals[at(rank)].tokens) {
    if (!hasRowPerExpert(route.config.layout)) {
      rows.push_back({token.row, token.source, -1});
      continue;
    }
    for (const ArrivedEntry& entry : token.entries) rows.push_back({entry.row, token.source, entry.localExpert});
  }
  return rows;
}

std::vector<std::int64_t> layoutRanges(const ReferenceRoute& route, int rank) {
  const int nranks = route.config.nranks;
  std::vector<std::int64_t> ranges;
  for (int expert = 0; expert < expertCount(route.config, rank); ++expert) {
    std::int64_t begin = 0;
    for (int source = 0; source < nranks; ++source) {
      std::int64_t count = 0;
      for (const DescribedRow& row : describedRows(route, rank))
        count += row.localExpert == expert && row.source == source ? 1 : 0;
      ranges.push_back(begin << 32 | count);
      begin += count;
    }
  }
  return ranges;
}

}  // namespace moe::test
