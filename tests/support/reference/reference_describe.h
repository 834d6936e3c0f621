// The sources of the rows that a route brings, computed from whole tokens.
#pragma once

#include "support/reference/reference.h"

namespace moe::test {

// A row of the layout for which a row has arrived. With a row per token, `localExpert` is -1.
struct DescribedRow {
  std::int64_t row;
  int source, localExpert;
};
std::vector<DescribedRow> describedRows(const ReferenceRoute& route, int rank);

// [localExperts][nranks] begin << 32 | count
std::vector<std::int64_t> layoutRanges(const ReferenceRoute& route, int rank);

}  // namespace moe::test
