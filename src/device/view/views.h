// The arguments of a step: plain structs of pointers and numbers, passed to kernels by value. "Window" memory is shared
// with the peers, and only policy operations access it. Everything else here is private to the rank.
#pragma once

#include "device/view/failure.h"
#include "device/view/ll_tables.h"
#include "device/view/placement.h"
#include "device/view/remote_view.h"
#include "device/view/scale_grid.h"
#include "device/view/window_layout.h"

namespace moe {

// Each channel is one numbered sequence of operations of a communicator. LL has a dispatch and a combine channel for
// each set of slots.
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

// Announcements that the warps of a step make together. Each is made at most once per step.
enum class Meeting : int {
  begin,
  counts,
  countsRead,
  countsAgain,
  rows,
  taken,
  placed = taken,  // of a route, which takes no rows
  railsTaken,
  weights,
  waves,
  railWaves = waves + kHtWaves,
  arrivals = railWaves + kHtWaves,
  count = arrivals + kHtWaves
};

// GPU: WaitOrders as read by the first waiting lane of a tick, for all other lanes.
struct OrdersSeen {
  std::uint32_t tick;     // the tick in which a lane read the orders last
  std::uint32_t timeout;  // timeout in ticks, plus 1; 0: no lane has read it yet
  std::uint32_t left;     // 1: some rank has left
};

// Private device memory of a communicator. Steps advance it themselves, so that a replayed graph continues correctly.
struct CommState {
  std::uint64_t epoch[kChannels];          // operations started so far
  Flag begun[kChannels];                   // counts the warps of a step that have read these words;
                                           // epoch e: all warps of operation e have read them
  std::uint32_t failuresClaimed;           // claims so far; the first one may write the failure record
  Flag routeCounted;                       // announcement among the warps of a route: counts are written
  Flag routeRecounted;                     // the same for routes that count again
  std::uint64_t recounts;                  // routes so far that have counted again
  Flag routePlaced;                        // announcement by the warps of a route that a dispatch runs beside: all that
                                           // the dispatch needs before its rows arrive is in the handle
  std::uint64_t besideRoutes;              // dispatches so far that ran beside their route
  std::uint64_t handed[2][kChannels];      // operations so far; [1]: HT dispatches in waves
  std::uint64_t weighted[kChannels];       // combines so far that carried weights
  std::uint32_t llUncombined[kLlSetsMax];  // 1: the set's last operation was a dispatch
  std::uint32_t llUsed[kLlSetsMax];        // 1: RANK_MAJOR rows may lie where rows of other operations land
  // Announcements among the warps of an HT operation across domains. railStaged: a wave is staged for the rails.
  // railsTaken: everything that arrived over the rails has been read. [dispatch, combine]
  Flag railStaged[2][kHtWaves], railsTaken[2];
  OrdersSeen ordersSeen;
  std::uint32_t lost[kRanksMax / 32];  // a bit for each rank that the group goes on without (lost.h)
};

// The first windows are in the view itself. On a GPU the view is constant memory, which saves a load per address.
inline constexpr int kInlineWindows = 16;

// State that only communicators of several domains have. It is behind a pointer, so that other communicators do not
// pass it to every step.
struct FarView {
  RemoteLayout at;
  RemoteView remote;  // how puts are posted
};

struct StepRecorder;  // step_record.h

struct CommView {
  int rank, nranks;
  int domainFirst, domainSize;                  // this rank's domain: the ranks that it reaches by loads and stores
  std::uint8_t* inlineWindows[kInlineWindows];  // the windows of the first ranks
  std::uint8_t* const* windows;  // [nranks] each rank's window as mapped here; NULL: the rank is in another domain
  const FarView* far;            // only with several domains
  WindowLayout at;
  CommState* state;
  Failure* failure;          // host-visible
  const WaitOrders* orders;  // host-visible; written by the host
  std::uint32_t* departed;   // [nranks] host-visible, written by the host; not 0: the rank
                             // has left, and all data that it sent has arrived
  int tokensMax, llTokensMax, rowBytesMax, sideBytesMax, topkMax;
  std::uint64_t* waits;    // [nranks] private; longest wait for each rank so far, in ns; NULL: not measured
  StepRecorder* recorder;  // private; NULL: steps are not recorded

  // Whether there is more than one domain.
  MOE_HOST_DEVICE bool split() const { return domainSize != nranks; }
  MOE_HOST_DEVICE bool inDomain(int other) const {
    return static_cast<unsigned>(other - domainFirst) < static_cast<unsigned>(domainSize);
  }
  MOE_HOST_DEVICE int remoteRanks() const { return nranks - domainSize; }
  MOE_HOST_DEVICE int remoteRank(int i) const { return i < domainFirst ? i : i + domainSize; }
  MOE_HOST_DEVICE int domains() const { return nranks / domainSize; }
  MOE_HOST_DEVICE int domain() const { return domainFirst / domainSize; }
  // The rank with this rank's place in another domain.
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

// Where one row of a token goes. Destinations in this domain come first, in rank order. The others follow: in LL the
// ranks of other domains, in HT the rail peer in each other domain that the token goes to.
struct alignas(16) Destination {
  std::int16_t rank;   // kNoRank: end of the list
  std::int16_t wave;   // wave of handles whose waves are by experts; else 0
  std::int32_t index;  // position among the rows that this rank sends there: the slot in arrays [from][index]
  std::int32_t row;    // row of the receiver's layout (expert-major: row of the first entry)
  std::int32_t flat;   // row in FLAT order
};

// Tables of the route that each of its warps has for itself. See RouteSlice.
struct RouteTables {
  std::uint32_t* users;           // [chunks of tokensMax][buckets] bit masks of tokens; buckets are experts and ranks
  std::int32_t* chunkStart;       // [chunks of tokensMax][buckets]
  std::int32_t* warpCounts;       // [route's warps][buckets] users among a warp's tokens; all warps read it
  std::int32_t* warpPlace;        // [route's warps][buckets]
  std::int32_t* warpGroups;       // [route's warps][buckets]
  std::int32_t* warpRankBase;     // [route's warps][nranks]
  std::int32_t* warpRankOffsets;  // [route's warps][nranks + 1]
  std::int32_t* warpWaveRows;     // [route's warps][kHtWaves * nranks + 1] only if waves are by experts
  std::uint8_t* blocks;           // LL: [blocks][words of LlTableLayout], for blocks without scratch memory
};

// The id of an entry that counts together with entry `k` of its token. It is below -1, so that the entry counts as
// unused.
MOE_HOST_DEVICE constexpr int idOfMerged(int k) {
  return -2 - k;
}
MOE_HOST_DEVICE constexpr bool isMerged(int id) {
  return id < -1;
}
MOE_HOST_DEVICE constexpr int mergedInto(int id) {
  return -2 - id;
}

// The rows that this rank sends.
struct Sent {
  std::int32_t* ids;  // [tokensMax][topk] global expert, -1, or idOfMerged
  float* weights;     // [tokensMax][topk]
  RouteTables tables;
  std::int32_t* totals;            // [buckets]
  std::int32_t* entryRow;          // [tokensMax][topk] row of the receiver's layout, if layouts have a row per expert
  std::int32_t* destinationCount;  // [tokensMax]
  std::int32_t* localCount;        // [tokensMax] destinations in this domain; with one
                                   // domain the same array as destinationCount
  Destination* destinations;       // [tokensMax][destinationsMax]
  std::uint32_t* wavesOf;          // [tokensMax] if waves are by experts: bit v is set if a destination is in wave v
  std::int32_t* layoutRowsOf;      // [nranks] rows of the layout at each rank
  std::int32_t* flatRowsOf;        // [nranks] rows that arrive at each rank, counting each token once
};

// The rows that arrive at this rank.
struct Arriving {
  std::int32_t* rows;           // [1]
  std::int32_t* rankOffsets;    // [nranks + 1]
  std::int32_t* rowsPerExpert;  // [localExperts]
  std::int32_t* expertOffsets;  // [localExperts + 1] only of layouts with a row per expert
  std::int32_t* wanted;      // [1 + localExperts] with a budget: rows, and rows per expert, as they would be without it
  std::int32_t* allExperts;  // [experts] rows that arrive for each expert on all ranks; NULL: not requested
  Quad* headers;             // [arrivingRowsMax][headerQuads], in FLAT order
  std::int32_t* waveStart;   // HT: [kHtWaves][nranks] first row of a source's tokens in a wave, in FLAT order
  std::int32_t* waveRows;    // if waves are by experts: [arrivingRowsMax] rows in FLAT order, sorted by wave
  std::int32_t* waveRowsStart;  // if waves are by experts: [kHtWaves][nranks] + 1, where
                                // the rows of a source begin in waveRows
  Flag* complete;               // [localExperts] number of dispatches that are complete for an expert
  Flag* sentIn;                 // LL, layouts with a row per expert: [arrivingRowsMax] the
                                // combine that has sent the row in its first part
};

// Rows that leave for other domains or arrive over the rails.
struct RailTables {
  std::int32_t* outgoing;  // token of each index: LL [nranks][tokensMax], HT [domains][tokensMax]
  std::int32_t* count;     // HT: [domains][tokensMax] destinations in this domain of a row that arrives over a rail
  Destination* to;         // HT: [domains][tokensMax][railDestinationsMax()] these destinations
  std::int32_t* start;     // HT: [kHtWaves + 1][domains] index of the first row of a wave
};

// Private device memory of a handle that outlives a step.
struct HandleState {
  std::uint64_t dispatchEpoch, combineEpoch;    // epoch of the operation that was started last
  std::uint64_t dispatchHanded, combineHanded;  // number of that operation among those handed over
                                                // the same way, at once or in waves
  std::uint64_t combineLeft;  // epoch of the combine whose second part sends the rows that its first part left; 0: none
  std::uint32_t routes;       // latest ticket whose counts were received; the tag of the host's counts
  std::uint32_t fault;        // not 0: result code (resultOf) of a fault; nothing of the
                              // handle is delivered until its next route
  std::uint32_t silent;       // 1: the operation that was started last delivers nothing
  std::uint64_t faults;       // faults so far
};

// A count for the host, in host-visible memory, together with the ticket of its route. The ticket in each word shows
// whether the count is valid, so steps store these words in any order and without fences.
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

// The counts that a route stores for the host. A route that changes HandleView::fault publishes it by storing `rows`
// afterwards. The arrays of HandleView::countsPerRank and so on lie after `layoutRows`.
struct CountWords {
  CountWord rows, layoutRows;
};

struct HandleView {
  ExpertMap map;
  int placesNamed;  // experts that a placement may name: those of the map, or more if the map has no rank for some
  int topk, destinationsMax;  // of a token
  Divisor byTopk, byItems;    // byItems: entries plus destinations of a token, for which the route writes headers
  Divisor byHeader;           // Quads of a header
  Layout layout;
  int lowLatency;  // 1: LL; 0: HT
  int llSet;       // LL: the handle's set of slots
  int tokensMax;   // most tokens of a rank in this route, from which strides follow;
                   // memory is allocated for the handle's tokensMax
  int waves;       // of HT operations that go in waves; at most kHtWaves
  int alignment;   // EXPERT_MAJOR only
  Divisor byAlignment;
  int wideIndex;         // 1: ids are int64
  int merges;            // 1: an expert that a token names twice counts once
  int arrivals;          // 1: the handle has arrival words
  int rowsBudget;        // not 0: at most this many rows arrive at a rank, and the rest is left out
  int countsExperts;     // 1: a route reports how many rows each of all experts gets
  int weighted;          // 1: combines carry the weights of their rows; layouts with a row per expert only
  int routesInDispatch;  // 1: an LL dispatch can route in the same step, using llTables; the same on all ranks
  LlTableLayout llTables;
  Quad terms;            // terms that all ranks must share, except the placement: terms.h
  Placement* placement;  // in the handle's memory, written only while no step reads it; NULL: ids are physical

  Sent sent;
  Arriving arriving;
  int domains;
  RailTables rails;

  std::uint32_t ticket;  // ticket of the route that this step belongs to; see comm/handle/operation.h
  int number;            // number of this handle in its communicator, from 0
  HandleState* state;
  Failure* fault;      // explains HandleState::fault, in host-visible memory
  CountWords* counts;  // in host-visible memory, or in the handle's (HandleShape::countsStay)

  // The host's counts of this rank, `rank`: several arrays, one after the other. countWordsOf() is their total number.
  MOE_HOST_DEVICE CountWord* countsPerRank() const { return reinterpret_cast<CountWord*>(counts + 1); }
  MOE_HOST_DEVICE CountWord* countsPerExpert() const { return countsPerRank() + map.nranks; }
  // With a budget: the rows that would have arrived without it: [1] in all and [localExperts] per expert.
  MOE_HOST_DEVICE CountWord* countsWanted(int rank) const { return countsPerExpert() + map.count(rank); }
  // Rows of each of all experts, if they are counted.
  MOE_HOST_DEVICE CountWord* countsOfAllExperts(int rank) const {
    return countsWanted(rank) + (rowsBudget != 0 ? 1 + map.count(rank) : 0);
  }
  MOE_HOST_DEVICE CountWord* countsEnd(int rank) const {
    return countsOfAllExperts(rank) + (countsExperts != 0 ? map.experts : 0);
  }
  // Buckets that the route counts. Experts, ranks and, for HT across domains, domains come first; all ranks receive
  // these counts. The waves of each rank follow, if waves are by experts. The last bucket counts tokens with an invalid
  // entry.
  MOE_HOST_DEVICE int sharedBuckets() const { return map.experts + map.nranks + (hasRails() ? domains : 0); }
  MOE_HOST_DEVICE int faultBucket() const { return sharedBuckets() + (wavesByExpert() ? waves * map.nranks : 0); }
  MOE_HOST_DEVICE int buckets() const { return faultBucket() + 1; }
  MOE_HOST_DEVICE int domainBucket(int domain) const { return map.experts + map.nranks + domain; }
  MOE_HOST_DEVICE int waveBucket(int rank, int wave) const { return sharedBuckets() + wave * map.nranks + rank; }
  MOE_HOST_DEVICE bool hasRails() const { return domains > 1 && lowLatency == 0; }
  MOE_HOST_DEVICE bool wavesByExpert() const { return arrivals != 0 && domains == 1 && lowLatency == 0; }
  MOE_HOST_DEVICE int railDestinationsMax() const { return destinationsPerToken(topk, map.nranks / domains); }
  MOE_HOST_DEVICE int headerStride() const { return static_cast<int>(headerQuads(topk)); }
  // The number of experts that a route may name.
  MOE_HOST_DEVICE int namedExperts() const { return placement != nullptr ? placement->logicalExperts : map.experts; }
  // Size of an expert's group of rows, padding included, if `full` of its rows are in use.
  MOE_HOST_DEVICE int groupRows(int full) const { return byAlignment.of(full + alignment - 1) * alignment; }
};

// Whether a dispatch of this handle can route in the same step. The same on all ranks.
MOE_HOST_DEVICE bool dispatchRoutes(const HandleView& h) {
  return h.routesInDispatch != 0;
}

// Whether the layout has a row for each local expert of a token.
MOE_HOST_DEVICE bool expertRows(const HandleView& h) {
  return h.layout == Layout::expertMajor || h.layout == Layout::expertMajorPadded;
}

enum PhaseBits : int { kSendPhase = 1, kReceivePhase = 2 };
// How rows are divided among warps.
struct Parts {
  int count;            // parts of a row
  std::uint32_t bytes;  // size of each part but the last; a multiple of 16
};

struct RouteArgs {
  const void* topkIdx;
  const float* topkWeights;
  int tokens;
  int followed = 0;  // 1: a dispatch runs beside this route, from `routePlaced` on
};

struct CastArgs {
  int type;                                            // a CastType
  int rowType;                                         // row type before the cast
  int elements;                                        // elements of a row
  std::uint32_t codeBytes;                             // bytes of a row's codes; without a cast, of a row with payloads
  const float *inputScale, *globalScale, *rowWeights;  // as in CastRule
  std::uint32_t* outScales;
  std::int32_t* outBlockOffsets;  // [localExperts + 1] if scales or payloads lie in blocks of experts; else NULL
  std::uint64_t outScalesOffset;  // window offset; HT without staging only
  int words;                      // words of scales per row
  ScaleGrid grid;                 // where the scales lie in outScales
};

// The values that are stored to output rows for which no row arrives. kPadScales pads the scales of those that share a
// block with rows. With kPadRows too, it pads all scales of blocks.
enum PadBits : int { kPadIndices = 1, kPadRows = 2, kPadScales = 4 };

struct DispatchArgs {
  const std::uint8_t* rows;
  const std::uint8_t* side;  // NULL with payloads
  int tokens;
  std::uint32_t rowBytes, sideBytes;  // on the wire
  std::uint64_t terms;                // terms that all ranks must share: packDispatchTerms
  Parts parts;                        // parts of the tokens' rows as they are sent; with a cast, parts of their
                                      // elements
  Parts arriving;                     // parts of the arriving rows; there are usually more of these rows, so each has
                                      // fewer parts
  int countingBlock;                  // LL that routes: 1: the last of several blocks counts and moves no rows
  int straight;                       // LL: 1: this rank's own rows are copied from `rows` to `outRows` without a slot
  CastArgs cast;
  PayloadArgs payloads;
  std::uint8_t* outRows;  // NULL: rows stay where they arrived
  std::uint8_t* outSide;  // NULL with payloads
  std::int64_t capacity;
  std::uint64_t outRowsOffset, outSideOffset;  // window offsets; HT without staging only
  std::int64_t staged;  // 0: the output is in the window; else the rows that the staging area holds
  void* outTopkIdx;
  float* outTopkWeights;
  std::int32_t* outSourceIndex;
  std::int32_t* outExpertOffsets;
  int padding;            // PadBits
  int idBase, invalidId;  // outTopkIdx: id of this rank's first expert; id of entries without an expert here
  int besideRoute;        // HT: 1: the handle's route may still run
};

// The grid of scales or payloads in blocks of experts' rows; NULL: none. All such grids have the same blocks.
MOE_HOST_DEVICE const ScaleGrid* gridOfExperts(const DispatchArgs& d) {
  const ScaleGrid* found = d.cast.grid.experts != 0 ? &d.cast.grid : nullptr;
  for (int i = 0; i < d.payloads.count; ++i) {
    if (d.payloads.payload[i].grid.experts != 0) found = &d.payloads.payload[i].grid;
  }
  return found;
}

// How a combine learns that the experts have made its rows: see src/device/protocol/combine/README.md, "Combine behind
// blocks of the experts' rows". A kernel that runs alongside the combine makes the rows of local experts, in the
// handle's layout, and increments these words as it goes. The word of a row has number expert * wordsEach + (row -
// expert * rowsEach) >> shift.
struct ReadyWords {
  const std::uint32_t* words;  // NULL: all rows are ready
  std::uint32_t value;         // the value from which on a word counts as ready
  int shift;                   // shift of a row number: a block has 2^shift rows
  int wordsEach, rowsEach;     // words and rows per expert, if each expert has separate ones; else 0

  MOE_HOST_DEVICE std::int64_t number(int expert, int row) const {
    return std::int64_t{expert} * wordsEach + ((row - expert * rowsEach) >> shift);
  }
  MOE_HOST_DEVICE int blocks(int rows) const { return (rows + (1 << shift) - 1) >> shift; }
};
inline constexpr int kShiftsRowsAway = 31;  // shift that gives one word per expert

inline constexpr std::int64_t kAnyRows = INT64_MAX;

// How the warps of an HT combine in waves divide the work. The first `makers` warps of each block make rows, and the
// others take those that have come; 0: all warps do both. From wave `together` on, all warps take.
struct Makers {
  std::int16_t makers, together;
};

struct CombineArgs {
  const std::uint8_t* rows;
  std::int64_t held;         // rows of the layout that `rows` can hold; kAnyRows: unknown, and assumed to be enough
  int inPlace;               // 1: peers read `rows` itself; 0: peers read rows that are prepared for them
  std::uint64_t rowsOffset;  // HT: window offset of the rows that peers read: `rows` or the staging area
  std::int64_t capacity;     // HT: rows that the staging area holds
  int tokens;
  std::uint32_t rowBytes;
  std::uint32_t wireBytes;  // from row to row where peers read them: rowBytes, or fewer with a wire format
  std::uint32_t terms;      // terms that all ranks must share: packCombineTerms
  int rowType;              // a moeRow value
  int wire, elements;       // wire: a WireType, for coded rows only; elements: of a row
  int weighted;
  const float* topkWeights;  // weights of a handle whose combines carry weights; NULL: those of the route
  Parts parts;               // parts of the tokens' sums
  Parts arriving;            // parts of the rows that arrived in the dispatch
  std::uint8_t* out;
  const std::uint8_t* bias0;
  const std::uint8_t* bias1;
  int grads;    // 1: gradients of the weights are carried; a rank without rows or tokens may still have no array
  int ownRows;  // HT, not in place: 1: this rank's sums read its own rows, one per token, at `rows`; none are made of
                // them. Coded rows on GPUs: only bfloat16, and not in LogFMT-10
  const float* weightGrads;
  float* outWeightGrads;
  ReadyWords ready;
  int leaves;     // 1: rows that wait for `ready` may be left to the second part
  Makers makers;  // only steps that send and receive are divided
};

// Arrays about the rows that `dispatch` has delivered. A step of their own fills them, or the plain dispatch that
// routes. NULL: not requested.
struct DescribeArgs {
  std::int64_t* layoutRange;    // [localExperts][nranks]
  std::int32_t* rowExperts;     // [rows]
  std::int32_t* rowsPerExpert;  // [localExperts]
};

// Sums that a step updates after an operation. NULL: not kept.
struct TallyArgs {
  std::int64_t *rowsPerExpert, *rowsPerRank;  // [localExperts], [nranks] rows of a dispatch
  std::int64_t *waitNs, *lateSteps;           // [nranks]
  std::int32_t* callRows;                     // [localExperts] as rowsPerExpert, for this call alone
  std::int64_t* callWaitNs;                   // [nranks] as waitNs, for this call alone
};
inline constexpr std::uint64_t kLateNs = 50000;  // a source is late if it was awaited this much longer than any other

// Everything that a step needs. All steps share one struct, so that a launch is (step, this, warps). Every byte of it
// adds launch time.
struct StepParams {
  CommView comm;
  HandleView handle;
  int phases;
  RouteArgs route;
  union {  // no step uses both
    DispatchArgs dispatch;
    CombineArgs combine;
  };
  DescribeArgs describe;
  TallyArgs tally;
};

}  // namespace moe
