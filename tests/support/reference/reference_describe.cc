#include "support/reference/reference_describe.h"

#include "support/base/index.h"

namespace moe::test {

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
