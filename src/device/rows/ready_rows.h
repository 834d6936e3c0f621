// Rows that another kernel of this rank still makes: a list of items, each of which may be read when its words have
// been counted up to a target. Policies look at the words, a lane at an item.
#pragma once

#include <concepts>

#include "device/view/failure.h"

namespace moe {

// The words of all items of all warps.
struct AllWords {
  const std::uint32_t* words;
  int count;
};

// For pickReady: count() items, of which item i waits for words(i) words, word(i, 0..words-1), until all of them have
// reached target(). The one that never does is reported as late(i, n, what the word is). The words are among all().
// mayLeave(): when all of those have reached the target, what was not picked may be left to a later step.
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

// Words wrap, so that a caller may raise the target for ever and never clears them.
MOE_HOST_DEVICE constexpr bool hasReached(std::uint32_t word, std::uint32_t target) {
  return static_cast<std::int32_t>(word - target) >= 0;
}

// Items that may be done now: begin + i for each bit i of the mask, which has a bit for each lane of the warp, at most
// 32. No bits: every item was picked, or the rest is left (kLeft), or did not come in time (kInVain).
struct ReadyPick {
  static constexpr int kInVain = -1, kLeft = -2;
  int begin;
  std::uint32_t mask;
};

// How far a warp has come with a list, as one of its lanes sees it. A lane has every kLanes-th item of a window.
struct ReadyScan {
  static constexpr int kTurns = 64;
  int base = 0, next = 0;   // the window's items
  int turn = 0;             // where the next look begins, so that none is looked at twice before all others are
  std::uint64_t open = 0;   // bit t: this lane's item of turn t was not picked
  std::uint32_t since = 0;  // when the policy first waited, in ticks of its own; 0: not yet

  MOE_HOST_DEVICE bool atEnd(int n) const { return next >= n; }
  MOE_HOST_DEVICE int item(int t, int lanes, int lane) const { return base + t * lanes + lane; }
  MOE_HOST_DEVICE int turns(int lanes) const { return (next - base + lanes - 1) / lanes; }

  // All lanes, when none has an open item.
  MOE_HOST_DEVICE void openWindow(int n, int lanes, int lane) {
    base = next;
    turn = 0;
    const int left = n - base, most = kTurns * lanes;
    next = left < most ? n : base + most;
    const int behind = next - base - lane, mine = behind > 0 ? (behind + lanes - 1) / lanes : 0;
    open = mine == 0 ? 0 : ~std::uint64_t{0} >> (kTurns - mine);
  }
  // A lane with an open item.
  MOE_HOST_DEVICE int firstOpen(int lanes, int lane) const {
    int t = 0;
    while (!isOpen(t)) ++t;
    return item(t, lanes, lane);
  }
  MOE_HOST_DEVICE void close(int t) { open &= ~(std::uint64_t{1} << t); }
  MOE_HOST_DEVICE bool isOpen(int t) const { return (open >> t & 1) != 0; }
  MOE_HOST_DEVICE void lookNextAt(int t, int lanes) { turn = t + 1 < turns(lanes) ? t + 1 : 0; }
  // Turns in the order in which they are looked at.
  MOE_HOST_DEVICE int turnAt(int look, int lanes) const {
    const int t = turn + look, all = turns(lanes);
    return t < all ? t : t - all;
  }
};

// The first word of an item that has not reached the target; if all have, their number. load(word) as the policy
// reads words.
template <ReadyList List, class Load>
MOE_LANES int missingWord(const List& list, int i, Load load) {
  const int words = list.words(i);
  int n = 0;
  MOE_ROLLED
  while (n < words && hasReached(load(list.word(i, n)), list.target())) ++n;
  return n;
}
// Whether the rest may be left now, as one lane sees it.
template <ReadyList List, class Load>
bool maySkipRest(const List& list, Load load) {
  if (!list.mayLeave()) return false;
  const AllWords all = list.all();
  for (int i = 0; i < all.count; ++i) {
    if (!hasReached(load(all.words + i), list.target())) return false;
  }
  return true;
}
// A warp of one lane looks at all open items in turn and picks one that is ready. -1: there is none.
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

// What is reported of an item whose words did not come.
template <ReadyList List, class Load>
MOE_LANES Failure lateItem(const List& list, int i, Load load) {
  const int n = missingWord(list, i, load), word = n < list.words(i) ? n : 0;
  return list.late(i, word, load(list.word(i, word)));
}

}  // namespace moe
