// The description of a route, computed from whole tokens: the tokens that a rank sends, and the sources of arriving
// rows.
#pragma once

#include "support/reference/reference.h"

namespace moe::test {

struct ReferenceSent {
  std::vector<std::int32_t> perRank, perDomain, perExpert;
  std::vector<std::uint8_t> toRank;  // [tokens][nranks]
};
ReferenceSent referenceSent(const ReferenceRoute& route, int rank);

// A row of the layout for which a row has arrived. With a row per token, `localExpert` is -1.
struct DescribedRow {
  std::int64_t row;
  int source, localExpert;
};
std::vector<DescribedRow> describedRows(const ReferenceRoute& route, int rank);

// [localExperts][nranks] begin << 32 | count
std::vector<std::int64_t> layoutRanges(const ReferenceRoute& route, int rank);

}  // namespace moe::test
