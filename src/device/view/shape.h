// The sizes that a communicator and a handle are built for, and the arithmetic that follows from them. Host and device
// use these plain numbers; nothing here touches memory.
#pragma once

#include "device/lanes.h"

namespace moe {

inline constexpr int kParities = 2;  // generations of the route's buffers and of HT operations' records
inline constexpr int kRanksMax = 1024;
inline constexpr int kLlSetsMax = 4;     // sets of LL slots; a handle has one of them, see Room::takeLlSet
inline constexpr int kChunkTokens = 32;  // tokens of a chunk of the route: bits of a word
inline constexpr int kHtWaves = 8;       // the most waves of an HT operation: htWavesOf()
inline constexpr int kStagingAreasMax = 2;
inline constexpr int kTopkMax = 32;
inline constexpr int kRowAlignment = 16;
inline constexpr int kTermWords = 8;   // words before a route's counts: the handle's
                                       // terms (terms.h), and an invalid entry
inline constexpr int kToldWords = 12;  // words before the counts of experts in the metadata of
                                       // an LL dispatch that routes: ll_slots.h

struct CommShape {
  int nranks = 1;
  int domainSize = 0;   // number of ranks that reach each other by loads and stores; divides nranks; 0: all
  int tokensMax = 0;    // HT
  int llTokensMax = 0;  // LL
  int rowBytesMax = 0;
  int sideBytesMax = 0;
  int topkMax = 0;
  int expertsMax = 0;
  int llSets = 2;
  bool ht = false;
  bool ll = false;
  std::int64_t stagingRows = 0;
  int stagingAreas = 1;
  std::int64_t heapBytes = 0;

  int domainRanks() const { return domainSize > 0 ? domainSize : nranks; }
  int domains() const { return nranks / domainRanks(); }
};

// The number of waves of HT operations that go in waves. Each wave costs an announcement and a wait. But nothing runs
// beside the copies or sums of one wave, so operations of many tokens have more of them (decision 0127). Across domains
// the number has not been measured.
constexpr int htWavesOf(int domains, int tokensMax) {
  if (domains > 1 || tokensMax > 8192) return kHtWaves;
  return tokensMax <= 1024 ? 2 : tokensMax <= 4096 ? 4 : 6;
}

// How experts are spread over ranks: in order, experts / nranks each, and one more on the first experts % nranks ranks.
struct ExpertMap {
  int experts;
  int nranks;
  int base, extra;
  Divisor byBase, byMore;  // byMore divides by base + 1

  ExpertMap() = default;
  constexpr ExpertMap(int expertCount, int ranks)
      : experts(expertCount),
        nranks(ranks),
        base(experts / nranks),
        extra(experts % nranks),
        byBase(divisorOf(base)),
        byMore(divisorOf(base + 1)) {}

  MOE_HOST_DEVICE constexpr int first(int rank) const { return rank * base + (rank < extra ? rank : extra); }
  MOE_HOST_DEVICE constexpr int count(int rank) const { return base + (rank < extra ? 1 : 0); }
  MOE_HOST_DEVICE constexpr int rankOf(int expert) const {
    const int large = extra * (base + 1);
    return expert < large ? byMore.of(expert) : extra + byBase.of(expert - large);
  }
  // The number of the expert on `rank`, below count(rank). If the expert is on another rank, or is -1, the result is
  // larger.
  MOE_HOST_DEVICE constexpr unsigned local(int expert, int rank) const {
    return static_cast<unsigned>(expert - first(rank));
  }
  MOE_HOST_DEVICE constexpr bool isOn(int expert, int rank) const {
    return local(expert, rank) < static_cast<unsigned>(count(rank));
  }
};

// The most ranks that one token can go to.
MOE_HOST_DEVICE constexpr int destinationsPerToken(int topk, int nranks) {
  return topk < nranks ? topk : nranks;
}

// A row header is one Quad for the row and one per entry on this rank.
MOE_HOST_DEVICE constexpr std::int64_t headerQuads(int topk) {
  return 1 + topk;
}

}  // namespace moe
