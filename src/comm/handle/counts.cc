// How many rows a handle's latest route brings, for the host and for kernels. docs/internals/protocol.md, "Counts for
// the host".
#include <fmt/format.h>

#include <atomic>
#include <chrono>
#include <span>
#include <thread>

#include "comm/handle/handle.h"

namespace moe {

// The words that the host reads, after a copy if steps do not store to them.
std::span<CountWord> Handle::bringCounts() {
  CountWord* const words = &countsTold(told_.get())->rows;
  const std::size_t count = countsOnHost_.size();
  if (shape_.countsStay) backend().bringWords(words, &view_.counts->rows, count, Deadline::after(comm_.timeout()));
  return {words, count};
}

// Each word shows by itself whether it has arrived.
void Handle::waitForCounts() {
  const auto begin = std::chrono::steady_clock::now();
  std::size_t come = 0;
  for (int spins = 0;; ++spins) {
    const std::span words = bringCounts();
    while (come < words.size()) {
      const CountWord word = std::atomic_ref(words[come]).load(std::memory_order_acquire);
      if (ticketOf(word) < tickets_.expected()) break;
      countsOnHost_[come++] = countOf(word);
    }
    if (come == words.size()) return;
    if (const moeResult_t status = comm_.status(); status != moeSuccess) throw Error(status, comm_.errors().sentence());
    if (const auto timeout = comm_.timeout(); std::chrono::steady_clock::now() - begin >= timeout) {
      throw Error(moeTimeout,
                  fmt::format("moeHandleGetCounts: the counts did not arrive within {} ms", timeout.count()));
    }
    if (spins < 1000) {
      std::this_thread::yield();
    } else {
      std::this_thread::sleep_for(std::chrono::microseconds(20));
    }
  }
}

moeCounts_t Handle::counts() {
  if (tickets_.expected() == 0) {
    throw Error(moeInvalidUsage, "moeHandleGetCounts: moeRoute has not been called on this handle");
  }
  if (pending_.kind != OperationKind::none && rowOf(pending_.step).routes()) {
    throw Error(
        moeInvalidUsage,
        "moeHandleGetCounts: the counts arrive with the rows: call moeComplete for this moeRouteDispatch first");
  }
  checkNotVoid("moeHandleGetCounts");
  waitForCounts();
  const auto onHost = [&](const CountWord* word) {
    return &countsOnHost_[static_cast<std::size_t>(word - &view_.counts->rows)];
  };
  const int rank = room_.view.rank;
  moeCounts_t counts = MOE_COUNTS_INITIALIZER;
  counts.rows = *onHost(&view_.counts->rows);
  counts.layoutRows = *onHost(&view_.counts->layoutRows);
  counts.localExperts = localExperts();
  counts.firstExpert = firstExpert_;
  counts.rowsPerRank = onHost(view_.countsPerRank());
  counts.rowsPerExpert = onHost(view_.countsPerExpert());
  const bool budget = shape_.rowsBudget > 0;
  counts.rowsWanted = budget ? *onHost(view_.countsWanted(rank)) : counts.rows;
  counts.rowsWantedPerExpert = budget ? onHost(view_.countsWanted(rank) + 1) : counts.rowsPerExpert;
  if (shape_.expertCounts) counts.rowsOfAllExperts = onHost(view_.countsOfAllExperts(rank));
  return counts;
}

moeDeviceCounts_t Handle::deviceCounts() const {
  moeDeviceCounts_t counts = MOE_DEVICE_COUNTS_INITIALIZER;
  counts.rows = view_.arriving.rows;
  counts.rankOffsets = view_.arriving.rankOffsets;
  counts.rowsPerExpert = view_.arriving.rowsPerExpert;
  counts.expertOffsets = view_.arriving.expertOffsets;
  counts.mode = lowLatency() ? moeModeLl : moeModeHt;
  counts.fault = &view_.state->fault;
  const bool budget = shape_.rowsBudget > 0;
  counts.rowsWanted = budget ? view_.arriving.wanted : counts.rows;
  counts.rowsWantedPerExpert = budget ? view_.arriving.wanted + 1 : counts.rowsPerExpert;
  if (shape_.expertCounts) counts.rowsOfAllExperts = view_.arriving.allExperts;
  return counts;
}

}  // namespace moe
