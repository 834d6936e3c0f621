// The words of a communicator between operations, as a recovery writes them: every operation so far has ended on every
// rank, and nothing that it left counts (decision 0122). The host writes them while no step runs on any rank.
#pragma once

#include <algorithm>
#include <array>
#include <cstring>
#include <span>
#include <type_traits>
#include <vector>

#include "device/view/lost.h"

namespace moe {

// The number of words at the beginning of a window that outlast a step: the flags, and llLastRows, which must fit the
// row bits of the flags. They lie before routeCounts. Everything else in a window is written anew by each step before
// it is read, or is the caller's. Decision 0121 has a table of these words, with their writers and readers.
inline std::size_t lastingWords(const WindowLayout& at) {
  return static_cast<std::size_t>(at.routeCounts) / sizeof(Flag);
}

// The areas in which ranks tell each other terms, counts and places, with their sizes in bytes. A recovery without lost
// ranks fills them with zeros, which is what these have told from then on. What others have told is of no use any more.
struct ToldArea {
  std::uint64_t begin, bytes;
};
inline std::array<ToldArea, 2> toldAreas(const WindowLayout& at, int nranks, int llSets) {
  const auto told = static_cast<std::uint64_t>(llSets * nranks) * static_cast<unsigned>(at.llToldBytes);
  return {ToldArea{at.routeCounts, at.routeHeaders - at.routeCounts}, {at.llTold, at.llBytes == 0 ? 0 : told}};
}

// How many operations of each kind a rank has ended. Steps number their operations by these counts.
struct EndedOperations {
  std::uint64_t epoch[kChannels];
  std::uint64_t recounts;
  std::uint64_t handed[2][kChannels];
  std::uint64_t weighted[kChannels];
};

inline EndedOperations endedOf(const CommState& state) {
  EndedOperations ended{};
  std::copy_n(state.epoch, kChannels, ended.epoch);
  ended.recounts = state.recounts;
  for (int kind = 0; kind < 2; ++kind) std::copy_n(state.handed[kind], kChannels, ended.handed[kind]);
  std::copy_n(state.weighted, kChannels, ended.weighted);
  return ended;
}

// Counts that no rank has reached, not even with an operation that it has begun. Every rank gets the same.
inline EndedOperations beyond(std::span<const EndedOperations> ranks) {
  EndedOperations all{};
  const auto raise = [](std::uint64_t& count, std::uint64_t reached) { count = std::max(count, reached + 1); };
  for (const EndedOperations& one : ranks) {
    raise(all.recounts, one.recounts);
    for (int channel = 0; channel < kChannels; ++channel) {
      raise(all.epoch[channel], one.epoch[channel]);
      raise(all.handed[0][channel], one.handed[0][channel]);
      raise(all.handed[1][channel], one.handed[1][channel]);
      raise(all.weighted[channel], one.weighted[channel]);
    }
  }
  return all;
}

// The dispatches (0) or combines (1) among them that handed over rows over rails, where there are several domains.
inline std::uint64_t handedOverRails(const EndedOperations& ended, int rails) {
  return rails == 0 ? ended.handed[1][kHtDispatchChannel] : ended.handed[0][kHtCombineChannel];
}

// The ranks that the others go on without, ascending.
using LostList = std::span<const int>;

// The private state of a rank that has ended these operations. No set of slots has rows that somebody still reads. Rows
// may lie where others will land, so the next combine that lands there empties these places first.
inline CommState settledState(const EndedOperations& ended, LostList lost) {
  CommState state{};
  std::copy_n(ended.epoch, kChannels, state.epoch);
  for (int channel = 0; channel < kChannels; ++channel) state.begun[channel] = flagWord(ended.epoch[channel]);
  state.routeCounted = flagWord(ended.epoch[kRouteChannel]);
  state.routeRecounted = flagWord(ended.recounts);
  state.recounts = ended.recounts;
  for (int kind = 0; kind < 2; ++kind) std::copy_n(ended.handed[kind], kChannels, state.handed[kind]);
  std::copy_n(ended.weighted, kChannels, state.weighted);
  std::fill_n(state.llUsed, kLlSetsMax, 1u);
  for (int rails = 0; rails < 2; ++rails) {
    const Flag handed = flagWord(handedOverRails(ended, rails));
    std::fill_n(state.railStaged[rails], kHtWaves, handed);
    state.railsTaken[rails] = handed;
  }
  for (const int rank : lost) state.lost[rank / 32] |= 1u << rank % 32;
  return state;
}

// Writes the words at the beginning of a window, in a private copy of them. Every rank's are alike. The words of lost
// ranks are ahead of all operations, so nobody waits for them.
class SettledWords {
 public:
  // `words`: those of lastingWords(). What they hold does not matter. `far`: NULL if there is one domain.
  SettledWords(std::span<Flag> words, const WindowLayout& at, const RemoteLayout* far, const CommShape& shape,
               LostList lost)
      : words_(words),
        at_(at),
        far_(far),
        nranks_(shape.nranks),
        domains_(shape.domains()),
        llSets_(shape.llSets),
        lost_(lost) {}

  void write(const EndedOperations& ended) const {
    const std::uint64_t combines = ended.epoch[kHtCombineChannel];
    fill(at_.routeCountsReady, ended.epoch[kRouteChannel]);
    fill(at_.routeHeadersReady, ended.epoch[kRouteChannel]);
    fill(at_.routeCountsRead, ended.recounts);
    fill(at_.routeCountsAgain, ended.recounts);
    fill(at_.htOutputReady, ended.epoch[kHtDispatchChannel]);
    fill(at_.htRowsReady, ended.handed[0][kHtDispatchChannel]);
    fill(at_.htRowWaves, ended.handed[1][kHtDispatchChannel], kHtWaves);
    fill(at_.htCombineWaves, ended.handed[0][kHtCombineChannel], kHtWaves);
    fill(at_.htWeightsReady, ended.weighted[kHtCombineChannel]);
    // The combines of each parity among the first `combines`.
    fillPart(at_.htCombineDone, static_cast<int>(combines % kParities), (combines + 1) / 2);
    fillPart(at_.htCombineDone, static_cast<int>((combines + 1) % kParities), combines / 2);
    for (int set = 0; set < llSets_; ++set) writeSet(ended, set);
    // In llRowsReady no rows are left of the latest dispatch, which may not have reached all ranks.
    std::memset(words_.data() + at_.llLastRows / sizeof(Flag), 0,
                static_cast<std::size_t>(llSets_ * nranks_) * sizeof(std::int32_t));
    if (far_ != nullptr) writeRails(ended);
  }

 private:
  void writeSet(const EndedOperations& ended, int set) const {
    const Channel dispatches = llChannel(kLlDispatchChannel, set), combines = llChannel(kLlCombineChannel, set);
    fillPart(at_.llRowsReady, set, ended.epoch[dispatches]);
    fillPart(at_.llFree, set, ended.epoch[dispatches]);
    fillPart(at_.llCombineSizes, set, ended.epoch[combines]);
    fillPart(at_.llCombineFree, set, ended.epoch[combines]);
    fillPart(at_.llCombineReady, set, ended.handed[0][combines]);
    fillPart(at_.llWeightsReady, set, ended.weighted[combines]);
  }
  // A new transport begins, so nobody has said goodbye.
  void writeRails(const EndedOperations& ended) const {
    const auto fillRails = [&](std::uint64_t area, int words, std::uint64_t count) {
      std::fill_n(words_.begin() + static_cast<std::ptrdiff_t>(area / sizeof(Flag)), words, flagWord(count));
    };
    fillRails(far_->htRailWaves, kHtWaves * domains_, handedOverRails(ended, 0));
    fillRails(far_->htRailsFree, domains_, handedOverRails(ended, 0));
    fillRails(far_->htSumWaves, kHtWaves * domains_, handedOverRails(ended, 1));
    fillRails(far_->htSumsFree, domains_, handedOverRails(ended, 1));
    fillRails(far_->leaving, nranks_, 0);
  }
  void fill(std::uint64_t area, std::uint64_t count, int parts = 1) const {
    for (int part = 0; part < parts; ++part) fillPart(area, part, count);
  }
  void fillPart(std::uint64_t area, int part, std::uint64_t count) const {
    const auto first = static_cast<std::size_t>(area / sizeof(Flag)) + static_cast<std::size_t>(part * nranks_);
    std::fill_n(words_.begin() + static_cast<std::ptrdiff_t>(first), nranks_, flagWord(count));
    for (const int rank : lost_) words_[first + static_cast<std::size_t>(rank)] = kLostWord;
  }

  std::span<Flag> words_;
  const WindowLayout& at_;
  const RemoteLayout* far_;
  int nranks_, domains_, llSets_;
  LostList lost_;
};

// The state of a handle whose route is void: it delivers nothing until its next route. `before`: its state so far. What
// it has of the operation that was started last does not matter, because nobody completes that.
inline HandleState voidedState(const HandleState& before) {
  HandleState state = before;
  state.fault = kBadUsage;
  ++state.faults;
  return state;
}

// Empties a handle's route: no row is sent, awaited or sent back, and pads reach to the end of the layout. The fault
// alone does not stop rows, because in LL only one rank may have it. A route that was cut off has filled these arrays
// in part, and not on all ranks. Operations of a handle with a fault do not look at its other arrays. `tokensMax`: the
// most tokens of a route. `put(to, from, bytes)` writes to the handle's memory.
template <class Put>
void emptyRoute(const HandleView& h, int tokensMax, Put put) {
  const auto fill = [&](auto* to, std::int64_t count, auto value) {
    const std::vector<std::remove_pointer_t<decltype(to)>> values(static_cast<std::size_t>(count), value);
    put(to, values.data(), values.size() * sizeof values[0]);
  };
  Destination nowhere{};
  nowhere.rank = kNoRank;
  fill(h.sent.ids, std::int64_t{tokensMax} * h.topk, -1);
  fill(h.sent.destinations, std::int64_t{tokensMax} * h.destinationsMax, nowhere);
  fill(h.sent.destinationCount, tokensMax, 0);
  fill(h.arriving.rows, 1, 0);
  fill(h.arriving.rankOffsets, h.map.nranks + 1, 0);  // plain combines count rows by it
  if (h.domains > 1) {                                // puts count rows by these
    fill(h.sent.totals, h.buckets(), 0);
    fill(h.sent.localCount, tokensMax, 0);
  }
  if (h.hasRails()) fill(h.rails.start, (h.waves + 1) * h.domains, 0);
  std::vector<std::int32_t> layoutRows;
  for (int to = 0; to < h.map.nranks; ++to) {
    const int groups = h.layout == Layout::rankMajor ? 1 : h.layout == Layout::expertMajorPadded ? h.map.count(to) : 0;
    layoutRows.push_back(groups * h.map.nranks * tokensMax);
  }
  put(h.sent.layoutRowsOf, layoutRows.data(), layoutRows.size() * sizeof layoutRows[0]);
}

// The arrival words of a handle, so that all of them count the same dispatches. A reader then goes on with one number
// for all experts. A dispatch that was cut off counts as complete.
inline void settleArrivals(std::span<Flag> words) {
  Flag latest = 0;
  for (const Flag word : words) latest = std::max(latest, flagWord(flagEpoch(word) + (flagValue(word) == 0 ? 0 : 1)));
  std::fill(words.begin(), words.end(), latest);
}

}  // namespace moe
