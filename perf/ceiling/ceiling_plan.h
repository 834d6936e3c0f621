// The rows that the ceilings of a case move (ceiling/ceiling.h), computed from what all ranks send, and how they are
// cut for the kernels. There are only lists and arithmetic, no GPU, so that tests can carry out the copies.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "device/view/views.h"
#include "perf/moe_perf/plan.h"

namespace moe::perf {

// What one rank sends: for each destination rank, itself included, the slots of the rows that go there, in token order.
// A slot is token * destinationsPerToken + which of the token's ranks the destination is, in rank order.
using SentRows = std::vector<std::vector<std::int32_t>>;
SentRows sentRows(const Plan& plan, int nranks, int destinationsPerToken);

// For the trip through Group::gather.
std::vector<std::int32_t> toNumbers(const SentRows& sent);
SentRows toSentRows(const std::vector<std::int32_t>& numbers);

// The index of a row in one of a rank's buffers.
struct RowPlace {
  std::int32_t rank;
  std::int64_t row;
};

struct RowCopy {
  RowPlace from;
  RowPlace to;
};

// All rows of one route that cross between ranks. What a rank keeps for itself is in no list.
class RowTraffic {
 public:
  RowTraffic(std::vector<SentRows> sent, int destinationsPerToken)
      : sent_(std::move(sent)), destinationsPerToken_(destinationsPerToken) {}

  // Dispatch, as `rank` pushes its token rows to their FLAT rows at the other ranks. The copies of a token follow each
  // other, beginning with the rank after this one, so that ranks do not all store to the same one at a time.
  std::vector<RowCopy> dispatchPushes(int rank) const;

  // Combine, as `rank` pushes the rows that came to it to their slots at the tokens' owners. The rows are numbered in
  // the order in which they are pushed; owners take turns.
  std::vector<RowCopy> combinePushes(int rank) const;

  // Combine, as `rank` pulls the same rows for its own tokens, ordered by token. A token's rows go to its first slots,
  // without gaps.
  std::vector<RowCopy> combinePulls(int rank) const;

  // Rows of the FLAT output of `rank`, its own included: they leave gaps in what is pushed.
  std::int64_t flatRows(int rank) const;

 private:
  int nranks() const { return static_cast<int>(sent_.size()); }
  const std::vector<std::int32_t>& slots(int source, int destination) const {
    return sent_[static_cast<std::size_t>(source)][static_cast<std::size_t>(destination)];
  }

  std::vector<SentRows> sent_;  // [source][destination]
  int destinationsPerToken_;
};

// What must lie at `rank` after the copies: row `to` holds what row `from.row` of `from.rank` held.
std::vector<RowSpec> arrivalsOf(const std::vector<RowCopy>& copies, int rank);

// Of arrivals ordered by token: where each token's begin, [tokens + 1].
std::vector<std::int32_t> offsetsByToken(const std::vector<RowSpec>& arrivals, int tokens, int destinationsPerToken);

// Few rows are cut so that all warps have work. No part has more than `bytesMax`.
Parts cutRows(std::int64_t rows, std::uint32_t rowBytes, int warps, std::uint32_t bytesMax);

// One piece on its way through shared memory. Pieces with the same source follow each other; only the first loads it.
struct BulkCopy {
  std::uint64_t from;
  std::uint64_t to;
  std::uint32_t bytes;
  std::uint32_t loads;  // 1: the first of its source
};

// Addresses of the ranks' buffers, as this rank has them mapped.
using Addresses = std::vector<std::uint64_t>;

std::vector<BulkCopy> bulkCopies(const std::vector<RowCopy>& copies, Parts parts, std::uint32_t rowBytes,
                                 const Addresses& from, const Addresses& to);

// [rows][width]: the addresses to which row i of this rank goes, then zeros.
std::vector<std::uint64_t> sinkTable(const std::vector<RowCopy>& pushes, std::int64_t rows, int width,
                                     std::uint32_t rowBytes, const Addresses& to);

// [tokens][width]: the addresses from which token i pulls, then zeros.
std::vector<std::uint64_t> sourceTable(const std::vector<RowCopy>& pulls, int tokens, int width,
                                       int destinationsPerToken, std::uint32_t rowBytes, const Addresses& from);

// Multiprocessors to try: `asked` if it is not 0, else several for many tokens and all of them for few, and `choice`,
// if it is not 0.
std::vector<int> multiprocessorsToTry(int asked, int choice, bool fewTokens, int all);

}  // namespace moe::perf
