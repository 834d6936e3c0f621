// Rows that another kernel of this rank is still making. They are a list of items. An item may be read when its words
// have been counted up to a target. Policies read the words, with one lane for each item.
#pragma once

#include <concepts>

#include "device/view/failure.h"

namespace moe {

// The words of all items of all warps.
struct AllWords {
  const std::uint32_t* words;
  int count;
};

// For pickReady: a list of count() items. Item i is ready when its words word(i, 0..words(i)-1) have all reached
// target(). A word that does not reach target() in time is reported as late(i, n, its value). all() is the array that
// contains all these words. mayLeave(): when all words of all() have reached the target, the items that were not picked
// may be left to a later step.
template <class List>
concept ReadyList = requires(const List list, int i, std::uint32_t word) {
  { list.count() } -> std::same_as<int>;
  { list.words(i) } -> std::same_as<int>;
  { list.word(i, i) } -> std::same_as<const std::uint32_t*>;
  { list.target() } -> std::same_as<std::uint32_t>;
  { list.all() } -> std::same_as<AllWords>;
  { list.mayLeave() } -> std::same_as<bool>;
  { list.late(i, i, word) } -> std::same_as<Failure>;
};

// Words wrap around, so that a caller may keep raising the target and never clears the words.
MOE_HOST_DEVICE constexpr bool hasReached(std::uint32_t word, std::uint32_t target) {
  return static_cast<std::int32_t>(word - target) >= 0;
}

// Items that may be processed now: begin + i for each bit i of the mask. The mask has one bit for each lane of the
// warp, at most 32. An empty mask means that every item was picked, that the rest is left (kLeft), or that the rest was
// not ready in time (kInVain).
struct ReadyPick {
  static constexpr int kInVain = -1, kLeft = -2;
  int begin;
  std::uint32_t mask;
};

// A warp's progress through a list, as seen by one of its lanes. A lane has every kLanes-th item of a window.
struct ReadyScan {
  static constexpr int kTurns = 64;
  int base = 0, next = 0;  // items of the window: [base, next)
  int turn = 0;  // where the next look begins; it rotates, so that no item is looked at twice before all others
  std::uint64_t open = 0;   // bit t: this lane's item of turn t was not picked
  std::uint32_t since = 0;  // when the policy first waited, in its own ticks; 0: not yet

  MOE_HOST_DEVICE bool atEnd(int n) const { return next >= n; }
  MOE_HOST_DEVICE int item(int t, int lanes, int lane) const { return base + t * lanes + lane; }
  MOE_HOST_DEVICE int turns(int lanes) const { return (next - base + lanes - 1) / lanes; }

  // Called by all lanes when none of them has an open item.
  MOE_HOST_DEVICE void openWindow(int n, int lanes, int lane) {
    base = next;
    turn = 0;
    const int left = n - base, most = kTurns * lanes;
    next = left < most ? n : base + most;
    const int behind = next - base - lane, mine = behind > 0 ? (behind + lanes - 1) / lanes : 0;
    open = mine == 0 ? 0 : ~std::uint64_t{0} >> (kTurns - mine);
  }
  // Called by a lane that has an open item.
  MOE_HOST_DEVICE int firstOpen(int lanes, int lane) const {
    int t = 0;
    while (!isOpen(t)) ++t;
    return item(t, lanes, lane);
  }
  MOE_HOST_DEVICE void close(int t) { open &= ~(std::uint64_t{1} << t); }
  MOE_HOST_DEVICE bool isOpen(int t) const { return (open >> t & 1) != 0; }
  MOE_HOST_DEVICE void lookNextAt(int t, int lanes) { turn = t + 1 < turns(lanes) ? t + 1 : 0; }
  // The turn that is looked at as number `look`.
  MOE_HOST_DEVICE int turnAt(int look, int lanes) const {
    const int t = turn + look, all = turns(lanes);
    return t < all ? t : t - all;
  }
};

// The first word of an item that has not reached the target, or the number of words if all have. load(word) reads a
// word in the policy's way.
template <ReadyList List, class Load>
MOE_LANES int missingWord(const List& list, int i, Load load) {
  const int words = list.words(i);
  int n = 0;
  MOE_ROLLED
  while (n < words && hasReached(load(list.word(i, n)), list.target())) ++n;
  return n;
}
// Whether the rest may be left now. One lane decides it.
template <ReadyList List, class Load>
bool maySkipRest(const List& list, Load load) {
  if (!list.mayLeave()) return false;
  const AllWords all = list.all();
  for (int i = 0; i < all.count; ++i) {
    if (!hasReached(load(all.words + i), list.target())) return false;
  }
  return true;
}
// For a warp of one lane: looks at all open items in turn and picks one that is ready. -1: none is.
template <ReadyList List, class Load>
int pickOne(const List& list, ReadyScan& scan, Load load) {
  for (int look = 0; look < scan.turns(1); ++look) {
    const int turn = scan.turnAt(look, 1), i = scan.item(turn, 1, 0);
    if (!scan.isOpen(turn) || missingWord(list, i, load) != list.words(i)) continue;
    scan.close(turn), scan.lookNextAt(turn, 1);
    return i;
  }
  return -1;
}

// The failure that reports an item whose words did not reach the target.
template <ReadyList List, class Load>
MOE_LANES Failure lateItem(const List& list, int i, Load load) {
  const int n = missingWord(list, i, load), word = n < list.words(i) ? n : 0;
  return list.late(i, word, load(list.word(i, word)));
}

}  // namespace moe
