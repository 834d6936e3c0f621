// The rows that the ceilings of a case move (ceiling/ceiling.h), computed from what all ranks send, and how the kernels
// divide them. These are lists and arithmetic without a GPU, so that tests can carry out the copies.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "device/view/views.h"
#include "perf/moe_perf/plan.h"

namespace moe::perf {

// The rows that one rank sends: for each destination rank, itself included, their slots in token order. A slot is token
// * destinationsPerToken + the destination's position among the token's ranks, in rank order.
using SentRows = std::vector<std::vector<std::int32_t>>;
SentRows sentRows(const Plan& plan, int nranks, int destinationsPerToken);

// Flattened for Group::gather.
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

// All rows of one route that cross between ranks. Rows that stay on their rank are in no list.
class RowTraffic {
 public:
  RowTraffic(std::vector<SentRows> sent, int destinationsPerToken)
      : sent_(std::move(sent)), destinationsPerToken_(destinationsPerToken) {}

  // Dispatch: `rank` pushes its token rows to their FLAT rows on the other ranks. The copies of a token follow each
  // other, starting with the rank after this one, so that not all ranks store to the same one at a time.
  std::vector<RowCopy> dispatchPushes(int rank) const;

  // Combine: `rank` pushes the rows that came to it to their slots at the tokens' owners. Rows are numbered in the
  // order in which they are pushed. Owners take turns.
  std::vector<RowCopy> combinePushes(int rank) const;

  // Combine: `rank` pulls the same rows for its own tokens, ordered by token. A token's rows go to its first slots,
  // without gaps.
  std::vector<RowCopy> combinePulls(int rank) const;

  // Rows of the FLAT output of `rank`, its own included. Pushes leave gaps where those are.
  std::int64_t flatRows(int rank) const;

 private:
  int nranks() const { return static_cast<int>(sent_.size()); }
  const std::vector<std::int32_t>& slots(int source, int destination) const {
    return sent_[static_cast<std::size_t>(source)][static_cast<std::size_t>(destination)];
  }

  std::vector<SentRows> sent_;  // [source][destination]
  int destinationsPerToken_;
};

// The content that `rank` must hold after the copies: row `to` has the content of row `from.row` of `from.rank`.
std::vector<RowSpec> arrivalsOf(const std::vector<RowCopy>& copies, int rank);

// Where each token's arrivals start, [tokens + 1]. The arrivals are ordered by token.
std::vector<std::int32_t> offsetsByToken(const std::vector<RowSpec>& arrivals, int tokens, int destinationsPerToken);

// Cuts rows into parts so that all warps have work even with few rows. No part exceeds `bytesMax`.
Parts cutRows(std::int64_t rows, std::uint32_t rowBytes, int warps, std::uint32_t bytesMax);

// One piece on its way through shared memory. Pieces with the same source follow each other, and only the first one
// loads it.
struct BulkCopy {
  std::uint64_t from;
  std::uint64_t to;
  std::uint32_t bytes;
  std::uint32_t loads;  // 1: the first piece of its source
};

// Addresses of the ranks' buffers as mapped by this rank.
using Addresses = std::vector<std::uint64_t>;

std::vector<BulkCopy> bulkCopies(const std::vector<RowCopy>& copies, Parts parts, std::uint32_t rowBytes,
                                 const Addresses& from, const Addresses& to);

// [rows][width]: the addresses to which row i of this rank goes, then zeros.
std::vector<std::uint64_t> sinkTable(const std::vector<RowCopy>& pushes, std::int64_t rows, int width,
                                     std::uint32_t rowBytes, const Addresses& to);

// [tokens][width]: the addresses from which token i pulls, then zeros.
std::vector<std::uint64_t> sourceTable(const std::vector<RowCopy>& pulls, int tokens, int width,
                                       int destinationsPerToken, std::uint32_t rowBytes, const Addresses& from);

// Numbers of multiprocessors to try. If `asked` is not 0, that is the only one. Otherwise several for many tokens, all
// for few, and `choice` if it is not 0.
std::vector<int> multiprocessorsToTry(int asked, int choice, bool fewTokens, int all);

}  // namespace moe::perf
