// What a step gets to see: plain structs of pointers and numbers, passed to kernels by value. "Window" memory is shared
// with the peers and touched by policy operations only; everything else here is private to the rank.
#pragma once

#include "device/view/failure.h"
#include "device/view/ll_tables.h"
#include "device/view/placement.h"
#include "device/view/remote_view.h"
#include "device/view/scale_grid.h"
#include "device/view/window_layout.h"

namespace moe {

// Each channel is one numbered sequence of operations of a communicator. LL has one of each per set of slots.
enum Channel : int {
  kRouteChannel,
  kHtDispatchChannel,
  kHtCombineChannel,
  kLlDispatchChannel,
  kLlCombineChannel = kLlDispatchChannel + kLlSetsMax,
  kChannels = kLlCombineChannel + kLlSetsMax
};
MOE_HOST_DEVICE constexpr Channel llChannel(Channel first, int set) {
  return static_cast<Channel>(first + set);
}

// What the warps of a step announce together; each at most once per step.
enum class Meeting : int {
  begin,
  counts,
  countsRead,
  countsAgain,
  rows,
  taken,
  railsTaken,
  weights,
  waves,
  railWaves = waves + kHtWaves,
  arrivals = railWaves + kHtWaves,
  count = arrivals + kHtWaves
};

// GPU: what the first waiting lane of a tick has read in WaitOrders, for all others.
struct OrdersSeen {
  std::uint32_t tick;     // of which a lane was the first
  std::uint32_t timeout;  // in ticks, and 1; 0: nobody has looked yet
  std::uint32_t left;     // 1: some rank has left
};

// Private device memory of a communicator. Steps advance it themselves, so that a captured graph replays correctly.
struct CommState {
  std::uint64_t epoch[kChannels];          // operations started so far
  Flag begun[kChannels];                   // warps of a step that have read these words: all of epoch e
  std::uint32_t failuresClaimed;           // the first to raise it writes the failure record
  Flag routeCounted;                       // of a route's warps among themselves
  Flag routeRecounted;                     // the same, when they count again
  std::uint64_t recounts;                  // routes that have counted again
  std::uint64_t handed[2][kChannels];      // operations so far that went at once, and in waves
  std::uint64_t weighted[kChannels];       // combines so far that brought weights
  std::uint32_t llUncombined[kLlSetsMax];  // 1: the set's last operation was a dispatch
  std::uint32_t llUsed[kLlSetsMax];        // 1: rows of RANK_MAJOR may be where others land
  // Of the warps among themselves, by HT operations across domains: a wave is ready to be put on the rails, and all
  // that came by them has been read. [dispatch, combine]
  Flag railStaged[2][kHtWaves], railsTaken[2];
  OrdersSeen ordersSeen;
};

// So many ranks' windows are in the view itself: on a GPU that is constant memory, and saves a load per address.
inline constexpr int kInlineWindows = 16;

// What only communicators of several domains have: where steps look it up, so that others need not carry it along.
struct FarView {
  RemoteLayout at;
  RemoteView remote;  // how puts are posted
};

struct StepRecorder;  // step_record.h

struct CommView {
  int rank, nranks;
  int domainFirst, domainSize;                  // this rank's domain: ranks that it reaches by loads and stores
  std::uint8_t* inlineWindows[kInlineWindows];  // the first ones
  std::uint8_t* const* windows;                 // [nranks], each rank's window as mapped here; NULL: of another domain
  const FarView* far;                           // several domains
  WindowLayout at;
  CommState* state;
  Failure* failure;          // host-visible
  const WaitOrders* orders;  // host-visible; written by the host
  std::uint32_t* departed;   // [nranks], the same; not 0: the rank has left, and what it has sent is there
  int tokensMax, llTokensMax, rowBytesMax, sideBytesMax, topkMax;
  std::uint64_t* waits;    // [nranks] private; longest wait for each rank so far, in ns; NULL: nobody asks
  StepRecorder* recorder;  // private; NULL: steps are not recorded

  // More than one domain.
  MOE_HOST_DEVICE bool split() const { return domainSize != nranks; }
  MOE_HOST_DEVICE bool inDomain(int other) const {
    return static_cast<unsigned>(other - domainFirst) < static_cast<unsigned>(domainSize);
  }
  MOE_HOST_DEVICE int remoteRanks() const { return nranks - domainSize; }
  MOE_HOST_DEVICE int remoteRank(int i) const { return i < domainFirst ? i : i + domainSize; }
  MOE_HOST_DEVICE int domains() const { return nranks / domainSize; }
  MOE_HOST_DEVICE int domain() const { return domainFirst / domainSize; }
  // The rank of another domain with this rank's place.
  MOE_HOST_DEVICE int railPeer(int otherDomain) const { return rank + (otherDomain - domain()) * domainSize; }

  template <class T>
  MOE_HOST_DEVICE T* in(int owner, std::uint64_t offset) const {
    return reinterpret_cast<T*>((owner < kInlineWindows ? inlineWindows[owner] : windows[owner]) + offset);
  }
  template <class T>
  MOE_HOST_DEVICE T* mine(std::uint64_t offset) const {
    return in<T>(rank, offset);
  }
};

enum class Layout : std::int32_t { flat, expertMajor, expertMajorPadded, rankMajor };
inline constexpr std::int16_t kNoRank = -1;

// Where one row of a token goes. Those in this domain come first, in rank order; then, LL: the ranks of other domains;
// HT: the rail peer of each other domain that the token goes to.
struct alignas(16) Destination {
  std::int16_t rank;   // kNoRank: behind the last
  std::int16_t wave;   // of a handle whose waves are by experts; else 0
  std::int32_t index;  // position among the rows that this rank sends there: the slot in [from][index] arrays
  std::int32_t row;    // row of the receiver's layout (the first entry's, if expert-major)
  std::int32_t flat;   // row in FLAT order
};

// Tables of the route, which each of its warps has for itself: see RouteSlice.
struct RouteTables {
  std::uint32_t* users;           // [chunks of tokensMax][buckets] buckets: experts, ranks
  std::int32_t* chunkStart;       // [chunks of tokensMax][buckets]
  std::int32_t* warpCounts;       // [route's warps][buckets] users among a warp's tokens, for all warps
  std::int32_t* warpPlace;        // [route's warps][buckets]
  std::int32_t* warpGroups;       // [route's warps][buckets]
  std::int32_t* warpRankBase;     // [route's warps][nranks]
  std::int32_t* warpRankOffsets;  // [route's warps][nranks + 1]
  std::int32_t* warpWaveRows;     // [route's warps] waves by experts: [kHtWaves * nranks + 1]
  std::uint8_t* blocks;           // LL: [blocks][words of LlTableLayout], where there is no scratch memory
};

// An entry that counts with entry `k` of its token, as an id: below -1, so that it counts as unused.
MOE_HOST_DEVICE constexpr int idOfMerged(int k) {
  return -2 - k;
}
MOE_HOST_DEVICE constexpr bool isMerged(int id) {
  return id < -1;
}
MOE_HOST_DEVICE constexpr int mergedInto(int id) {
  return -2 - id;
}

// What this rank sends.
struct Sent {
  std::int32_t* ids;  // [tokensMax][topk] global expert, -1, or idOfMerged
  float* weights;     // [tokensMax][topk]
  RouteTables tables;
  std::int32_t* totals;            // [buckets]
  std::int32_t* entryRow;          // [tokensMax][topk] row of the receiver's layout, if it has rows per expert
  std::int32_t* destinationCount;  // [tokensMax]
  std::int32_t* localCount;        // [tokensMax] of them in this domain; of one domain: the same array
  Destination* destinations;       // [tokensMax][destinationsMax]
  std::uint32_t* wavesOf;          // [tokensMax] waves by experts: bit v: a destination is of wave v
  std::int32_t* layoutRowsOf;      // [nranks] rows of the layout at each rank
  std::int32_t* flatRowsOf;        // [nranks] rows that arrive at each rank, each token once
};

// What arrives here.
struct Arriving {
  std::int32_t* rows;           // [1]
  std::int32_t* rankOffsets;    // [nranks + 1]
  std::int32_t* rowsPerExpert;  // [localExperts]
  std::int32_t* expertOffsets;  // [localExperts + 1] of layouts with a row per expert
  std::int32_t* wanted;         // with a budget: [1 + localExperts] rows, and rows per expert, if there were none
  std::int32_t* allExperts;     // [experts] rows that arrive for each, on all ranks; NULL: nobody asks
  Quad* headers;                // [arrivingRowsMax][headerQuads], in FLAT order
  std::int32_t* waveStart;      // HT: [kHtWaves][nranks] first row of a wave's tokens of a source, in FLAT order
  std::int32_t* waveRows;       // waves by experts: [arrivingRowsMax] rows in FLAT order, wave by wave ...
  std::int32_t* waveRowsStart;  // ... and [kHtWaves][nranks] + 1 where those of a source begin
  Flag* complete;               // [localExperts] dispatches that are complete for an expert
  Flag* sentIn;  // LL, rows of experts: [arrivingRowsMax] the combine that has sent a row in its first part
};

// What goes to other domains, and comes over the rails.
struct RailTables {
  std::int32_t* outgoing;  // the token that has an index: LL [nranks][tokensMax], HT [domains][tokensMax]
  std::int32_t* count;     // HT: [domains][tokensMax] destinations here of a row that comes by a rail
  Destination* to;         // HT: [domains][tokensMax][railDestinationsMax()]
  std::int32_t* start;     // HT: [kHtWaves + 1][domains] first index of a wave's rows
};

// Private device memory of a handle that outlives a step.
struct HandleState {
  std::uint64_t dispatchEpoch, combineEpoch;    // of the operation that was started last
  std::uint64_t dispatchHanded, combineHanded;  // its number among those that go like it, at once or in waves
  std::uint64_t combineLeft;  // the combine whose second part sends what the first one has not: its epoch
  std::uint32_t routes;       // the latest ticket whose counts were received, the tag of the host's counts
  std::uint32_t fault;        // not 0: resultOf why nothing of the handle is delivered until its next route
  std::uint32_t silent;       // 1: the operation that was started last delivers nothing
  std::uint64_t faults;       // so far
};

// A count for the host, in memory that it sees, with the ticket of its route. Each word says for itself whether it has
// come, so steps store them in no order and fence nothing.
using CountWord = std::uint64_t;
MOE_HOST_DEVICE constexpr CountWord countWord(std::uint32_t ticket, std::int32_t count) {
  return std::uint64_t{ticket} << 32 | static_cast<std::uint32_t>(count);
}
constexpr std::uint32_t ticketOf(CountWord word) {
  return static_cast<std::uint32_t>(word >> 32);
}
constexpr std::int32_t countOf(CountWord word) {
  return static_cast<std::int32_t>(static_cast<std::uint32_t>(word));
}

// What a handle tells the host. `fault` says what HandleState::fault stands for. A route that changes it publishes
// `rows` behind it. Behind `layoutRows` are the arrays of HandleView::hostPerRank and so on.
struct HostCounts {
  Failure fault;
  CountWord rows, layoutRows;
};

struct HandleView {
  ExpertMap map;
  int placesNamed;            // experts that a placement may have: the map's, or more if some are on no rank of it
  int topk, destinationsMax;  // of a token
  Divisor byTopk, byItems;    // byItems: what the route writes of a token's headers, its entries and its destinations
  Divisor byHeader;           // the Quads of a header
  Layout layout;
  int lowLatency;  // 1: LL
  int llSet;       // LL: its set of slots
  int tokensMax;   // of a rank, in this route: what strides are made of; memory is for the handle's tokensMax
  int alignment;   // EXPERT_MAJOR
  Divisor byAlignment;
  int wideIndex;         // 1: int64
  int merges;            // 1: an expert that a token names again counts once
  int arrivals;          // 1: there are arrival words
  int rowsBudget;        // not 0: so many rows of tokens arrive at a rank at most, and the rest is left out
  int countsExperts;     // 1: a route tells how many rows all experts get
  int weighted;          // 1: combines bring the weights of their rows, which are of experts
  int routesInDispatch;  // 1: an LL dispatch can route in the same step, the same on all ranks; and then
  LlTableLayout llTables;
  Quad terms;            // what must agree between ranks, but for the placement: terms.h
  Placement* placement;  // in the handle's memory, and written while no step reads it; NULL: ids are physical

  Sent sent;
  Arriving arriving;
  int domains;
  RailTables rails;

  std::uint32_t ticket;  // of the route that this step belongs to; see comm/handle/operation.h
  int number;            // of the handle among those of its communicator, from 0
  HandleState* state;
  HostCounts* hostCounts;

  // The host's counts of this rank, `rank`, one array behind the other; hostCountWords() is all of them.
  MOE_HOST_DEVICE CountWord* hostPerRank() const { return reinterpret_cast<CountWord*>(hostCounts + 1); }
  MOE_HOST_DEVICE CountWord* hostPerExpert() const { return hostPerRank() + map.nranks; }
  // With a budget: how many were wanted, [1], and [localExperts] per expert.
  MOE_HOST_DEVICE CountWord* hostWanted(int rank) const { return hostPerExpert() + map.count(rank); }
  // Of all experts, if they are counted.
  MOE_HOST_DEVICE CountWord* hostAllExperts(int rank) const {
    return hostWanted(rank) + (rowsBudget != 0 ? 1 + map.count(rank) : 0);
  }
  MOE_HOST_DEVICE CountWord* hostCountsEnd(int rank) const {
    return hostAllExperts(rank) + (countsExperts != 0 ? map.experts : 0);
  }
  // Of the route's counts: experts, ranks and, HT across domains, domains, of which all ranks learn. Then, if waves are
  // by experts, each rank's waves. The last one is of tokens with an entry that cannot be.
  MOE_HOST_DEVICE int sharedBuckets() const { return map.experts + map.nranks + (hasRails() ? domains : 0); }
  MOE_HOST_DEVICE int faultBucket() const { return sharedBuckets() + (wavesByExpert() ? kHtWaves * map.nranks : 0); }
  MOE_HOST_DEVICE int buckets() const { return faultBucket() + 1; }
  MOE_HOST_DEVICE int domainBucket(int domain) const { return map.experts + map.nranks + domain; }
  MOE_HOST_DEVICE int waveBucket(int rank, int wave) const { return sharedBuckets() + wave * map.nranks + rank; }
  MOE_HOST_DEVICE bool hasRails() const { return domains > 1 && lowLatency == 0; }
  MOE_HOST_DEVICE bool wavesByExpert() const { return arrivals != 0 && domains == 1 && lowLatency == 0; }
  MOE_HOST_DEVICE int railDestinationsMax() const { return destinationsPerToken(topk, map.nranks / domains); }
  MOE_HOST_DEVICE int headerStride() const { return static_cast<int>(headerQuads(topk)); }
  // The experts that a route may name.
  MOE_HOST_DEVICE int namedExperts() const { return placement != nullptr ? placement->logicalExperts : map.experts; }
  // Rows of an expert's group in which `full` rows have something in them.
  MOE_HOST_DEVICE int groupRows(int full) const { return byAlignment.of(full + alignment - 1) * alignment; }
};

// Whether a dispatch of this handle can route in the same step: the same on all ranks.
MOE_HOST_DEVICE bool dispatchRoutes(const HandleView& h) {
  return h.routesInDispatch != 0;
}

// Layouts with a row for each local expert of a token.
MOE_HOST_DEVICE bool expertRows(const HandleView& h) {
  return h.layout == Layout::expertMajor || h.layout == Layout::expertMajorPadded;
}

enum PhaseBits : int { kSendPhase = 1, kReceivePhase = 2 };
// How a row is cut among warps.
struct Parts {
  int count;            // parts of a row
  std::uint32_t bytes;  // of each but the last; a multiple of 16
};

struct RouteArgs {
  const void* topkIdx;
  const float* topkWeights;
  int tokens;
};

struct CastArgs {
  int type;                                            // a CastType
  int rowType;                                         // of the rows that are cast
  int elements;                                        // of a row
  std::uint32_t codeBytes;                             // of a row's codes; without a cast, of a row with payloads
  const float *inputScale, *globalScale, *rowWeights;  // as in CastRule
  std::uint32_t* outScales;
  std::int32_t* outBlockOffsets;  // [localExperts + 1], if anything lies in blocks of experts; or NULL
  std::uint64_t outScalesOffset;  // window offset, HT and not staged
  int words;                      // of a row's scales
  ScaleGrid grid;                 // where they are in outScales
};

// What is stored to rows of the output that no row arrives for. kPadScales: to the scales of those that share a block
// with rows; if kPadRows is there too, to all scales of blocks.
enum PadBits : int { kPadIndices = 1, kPadRows = 2, kPadScales = 4 };

struct DispatchArgs {
  const std::uint8_t* rows;
  const std::uint8_t* side;  // NULL with payloads
  int tokens;
  std::uint32_t rowBytes, sideBytes;  // as they travel
  std::uint64_t terms;                // what must agree: packDispatchTerms
  Parts parts;                        // of the tokens' rows, as they are sent; with a cast, of their elements
  Parts arriving;                     // of the rows that arrive: usually more rows, so fewer parts
  int countingBlock;                  // LL that routes: 1: the last of several blocks counts, and moves no rows
  int straight;                       // LL: 1: this rank's own rows go from `rows` to `outRows`, without a slot
  CastArgs cast;
  PayloadArgs payloads;
  std::uint8_t* outRows;  // NULL: LL RANK_MAJOR rows stay in their slots
  std::uint8_t* outSide;  // NULL with payloads
  std::int64_t capacity;
  std::uint64_t outRowsOffset, outSideOffset;  // window offsets, HT and not staged
  std::int64_t staged;                         // 0: the output is in the window; else the rows of the staging area
  void* outTopkIdx;
  float* outTopkWeights;
  std::int32_t* outSourceIndex;
  std::int32_t* outExpertOffsets;
  int padding;            // PadBits
  int idBase, invalidId;  // outTopkIdx: of this rank's first expert; of none here
};

// How a combine learns that the experts have made its rows: src/device/protocol/combine/README.md, "Combine behind
// blocks of the experts' rows". Words that a kernel beside a combine counts up as it makes the rows of local experts,
// in the layout of the handle. A row's word is number expert * wordsEach + (row - expert * rowsEach) >> shift.
struct ReadyWords {
  const std::uint32_t* words;  // NULL: the rows are there
  std::uint32_t value;         // what a word must have reached
  int shift;                   // of a row number: a block has 2^shift rows
  int wordsEach, rowsEach;     // of an expert whose rows and words begin at a place of their own; else 0

  MOE_HOST_DEVICE std::int64_t number(int expert, int row) const {
    return std::int64_t{expert} * wordsEach + ((row - expert * rowsEach) >> shift);
  }
  MOE_HOST_DEVICE int blocks(int rows) const { return (rows + (1 << shift) - 1) >> shift; }
};
inline constexpr int kShiftsRowsAway = 31;  // a word for each expert

inline constexpr std::int64_t kAnyRows = INT64_MAX;

struct CombineArgs {
  const std::uint8_t* rows;
  std::int64_t held;         // rows of the layout that `rows` can hold; kAnyRows: not known, and enough
  int inPlace;               // 1: peers read `rows` itself; 0: rows that are prepared for them
  std::uint64_t rowsOffset;  // HT: window offset of what they read, `rows` or the staging area
  std::int64_t capacity;     // HT: rows that the staging area holds
  int tokens;
  std::uint32_t rowBytes;
  std::uint32_t wireBytes;  // of a row on the wire: rowBytes, or those of its wire format
  std::uint32_t terms;      // what must agree: packCombineTerms
  int rowType;              // a moeRow value
  int wire, elements;       // a WireType, of combines whose rows are coded; elements of a row
  int weighted;
  const float* topkWeights;  // of a handle whose combines bring weights; NULL: those of the route
  Parts parts;               // of the tokens' sums
  Parts arriving;            // of the rows that had arrived
  std::uint8_t* out;
  const std::uint8_t* bias0;
  const std::uint8_t* bias1;
  int grads;  // 1: gradients of the weights are carried, though a rank without rows or tokens has no array
  const float* weightGrads;
  float* outWeightGrads;
  ReadyWords ready;
  int leaves;  // 1: what waits for `ready` in a first part may be left to the second
};

// Arrays about the handle's route, for a step of their own. NULL: not asked for.
struct DescribeArgs {
  int tokens;  // of the route
  std::int32_t *tokensPerRank, *tokensPerDomain, *tokensPerExpert;
  std::uint8_t* tokenToRank;  // [tokens][nranks]
  // Of the rows that `dispatch` has brought.
  std::int64_t* layoutRange;  // [localExperts][nranks]
  std::int32_t* rowExperts;   // [rows]
};

// What a step behind an operation adds up. NULL: not kept.
struct TallyArgs {
  std::int64_t *rowsPerExpert, *rowsPerRank;  // [localExperts], [nranks] of a dispatch
  std::int64_t *waitNs, *lateSteps;           // [nranks]
  std::int32_t* callRows;                     // [localExperts] the call's own: as rowsPerExpert
  std::int64_t* callWaitNs;                   // [nranks] the same: as waitNs
};
inline constexpr std::uint64_t kLateNs = 50000;  // a source that was awaited so much longer than any other is late

// Everything a step needs. One struct for all steps: a launch is (step, this, warps). What it passes costs time.
struct StepParams {
  CommView comm;
  HandleView handle;
  int phases;
  RouteArgs route;
  union {  // no step has both
    DispatchArgs dispatch;
    CombineArgs combine;
  };
  DescribeArgs describe;
  TallyArgs tally;
};

}  // namespace moe
