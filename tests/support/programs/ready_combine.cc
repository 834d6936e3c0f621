// The part of CombineOperation that makes rows while the combine runs, as the experts' GEMM would.
#include <atomic>
#include <bit>
#include <set>

#include "support/base/index.h"
#include "support/base/rng.h"
#include "support/programs/operations.h"

namespace moe::test {
namespace {

// Rows and words per expert if each group has a fixed place; 0: groups follow one another.
std::int64_t rowsEach(const RouteConfig& config) {
  return config.layout == Layout::expertMajorPadded ? std::int64_t{config.nranks} * config.tokensMax : 0;
}
std::int64_t wordsEach(const RouteConfig& config, int blockRows) {
  return (rowsEach(config) + blockRows - 1) / blockRows;
}

}  // namespace

std::int64_t CombineOperation::readyWord(const ArrivedEntry& entry) const {
  const int blockRows = options_.ready.blockRows;
  if (blockRows == 0) return entry.localExpert;
  const std::int64_t each = rowsEach(route_->config);
  if (each == 0) return entry.row / blockRows;
  return entry.localExpert * wordsEach(route_->config, blockRows) + entry.row % each / blockRows;
}

std::int64_t CombineOperation::readyWords(int rank) const {
  const RouteConfig& config = route_->config;
  const int blockRows = options_.ready.blockRows, experts = expertCount(config, rank);
  if (blockRows == 0) return experts;
  if (rowsEach(config) != 0) return experts * wordsEach(config, blockRows);
  return (route_->arrivals[at(rank)].layoutRows + blockRows - 1) / blockRows;
}

void CombineOperation::fillReady(int rank) {
  PerRank& own = ranks_[at(rank)];
  const ReadyCase& ready = options_.ready;
  own.words = GuardedBytes(at(readyWords(rank)) * 4);
  auto* words = reinterpret_cast<std::uint32_t*>(own.words.data());
  std::fill_n(words, readyWords(rank), ready.value - 2);
  const int shift = ready.blockRows == 0 ? kShiftsRowsAway : std::countr_zero(static_cast<unsigned>(ready.blockRows));
  const bool perExpert = ready.blockRows == 0, each = rowsEach(route_->config) != 0;
  own.params.combine.leaves = ready.leaves ? 1 : 0;
  own.params.combine.ready = {words, ready.value, shift,
                              perExpert ? 1
                              : each    ? static_cast<int>(wordsEach(route_->config, ready.blockRows))
                                        : 0,
                              perExpert ? 0 : static_cast<int>(rowsEach(route_->config))};
}

std::int64_t CombineOperation::missingWord() const {
  if (options_.ready.never < 0) return -1;
  const ArrivedEntry& entry = route_->arrivals[at(options_.ready.never)].tokens.back().entries.back();
  return std::int64_t{entry.localExpert} << 32 | readyWord(entry);
}

// Each word counts twice, and its rows are there before the second time.
Watch CombineOperation::watch(int rank, int phases, Report&) {
  if ((phases & kSendPhase) == 0 || !isReadyLater(rank)) return {};
  const auto words = static_cast<int>(readyWords(rank));
  const auto look = [this, rank, words](int i) {
    // A stride that has no common factor with the number of words visits each word once.
    const int word =
        static_cast<int>((std::int64_t{i % words} * 7919 + static_cast<int>(options_.seed % 1009)) % words);
    if (missingWord() != -1 && rank == options_.ready.never && word == (missingWord() & 0xffffffff)) return;
    if (i >= words) makeBlock(rank, word);
    std::atomic_ref(reinterpret_cast<std::uint32_t*>(ranks_[at(rank)].words.data())[word])
        .fetch_add(1, std::memory_order_release);
  };
  return {nullptr, 2 * words, options_.seed % 1000, look};
}

void CombineOperation::makeBlock(int rank, std::int64_t word) const {
  const PerRank& own = ranks_[at(rank)];
  for (const ArrivedToken& token : route_->arrivals[at(rank)].tokens) {
    for (const ArrivedEntry& entry : token.entries) {
      if (readyWord(entry) != word) continue;
      auto* rows = const_cast<std::uint8_t*>(own.rows.data());
      makeRow(rank, token, &entry, rows + entry.row * options_.sum.rowBytes);
    }
  }
}

}  // namespace moe::test
