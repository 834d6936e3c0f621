// The layout of the symmetric window. It is the same on every rank except for the heap's size. It follows from the
// communicator's shape alone, so control words never move with a call's sizes. docs/reference/memory.md states the
// formula; docs/internals/protocol.md explains who writes, who reads and why nothing is overwritten early. In short,
// arrays "[from]" are indexed by the rank that writes, and the window's owner reads them. There are two exceptions: the
// owner may write llCombineRows for rank [from]; and peers read those rows and the rows that a CombineRecord names.
#pragma once

#include "device/view/flag.h"
#include "device/view/payloads.h"
#include "device/view/shape.h"

namespace moe {

struct WindowLayout {
  // Flags, [from] each.
  std::uint64_t routeCountsReady, routeHeadersReady;
  std::uint64_t routeCountsRead, routeCountsAgain;
  std::uint64_t htOutputReady, htRowsReady;
  std::uint64_t htWeightsReady;
  std::uint64_t htCombineDone;  // [parity][from]
  // Flags, [wave][from].
  std::uint64_t htRowWaves, htCombineWaves;
  // Flags, [set][from], with CommShape::llSets sets.
  std::uint64_t llRowsReady, llFree, llCombineSizes, llCombineReady, llCombineFree, llWeightsReady;
  // int32 [set][to], beside these flags: private memory of dispatches that route (ll_slots.h).
  std::uint64_t llLastRows;

  // Small records.
  std::uint64_t routeCounts;  // int32 [parity][from][countStride]: kTermWords, entries per expert, rows per rank
  std::uint64_t waveCounts;   // int32 [parity][from][kHtWaves]: rows that arrive in each wave, if waves are by experts
  std::uint64_t htOutputs;    // OutputRecord [parity][from]
  std::uint64_t htScales;     // ScaleRecord [parity][from][kScaleRecords]
  std::uint64_t htScaleOffsets;  // int32 [parity][from][scaleOffsetsStride]: offsets of
                                 // the rank's experts, see ScaleRecord
  std::uint64_t htCombines;      // CombineRecord [parity][from]
  std::uint64_t llSizes;         // uint64 [set][from]: terms of a dispatch
  std::uint64_t llTold;          // [set][from][llToldBytes]: metadata that a dispatch that
                                 // routes sends with its rows (ll_slots.h)

  // Rows. A handle uses the beginning of each [from] or [set] part, and packs it for its own sizes.
  std::uint64_t llRows;          // [set][from][llTokensMax][rowBytesMax]
  std::uint64_t llSide;          // [set][from][llTokensMax][sideBytesMax]
  std::uint64_t llCombineRows;   // [set][from][llTokensMax][rowBytesMax]: rows that go back to `from`,
                                 // which reads them; or landing words, which `from` writes
  std::uint64_t llCombineGrads;  // float [set][llTokensMax][topkMax]
  std::uint64_t llWeights;       // float [set][from][llTokensMax][topkMax]
  std::uint64_t routeHeaders;    // Quad [parity][from][routeTokensMax][headerQuads]
  std::uint64_t htCombineGrads;  // float [parity][tokensMax][topkMax]
  std::uint64_t htWeights;       // float [parity][from][tokensMax][topkMax]
  std::uint64_t staging;         // [stagingAreas][stagingRows][rowBytesMax]
  std::uint64_t stagingSide;     // [stagingAreas][stagingRows][sideBytesMax]

  std::uint64_t heap;

  std::uint64_t controlBytes, llBytes, htBytes, totalBytes;
  int countStride, routeTokensMax, scaleOffsetsStride;
  int llToldHead, llToldBytes;  // bytes before the headers, and in total
};

// Memory that only communicators of several domains have. This rank fills the "Out" areas and puts from them; other
// ranks put to the rest.
struct RemoteLayout {
  // Flags of HT, [wave][domain] and [domain].
  std::uint64_t htRailWaves, htSumWaves;
  std::uint64_t htRailsFree, htSumsFree;
  std::uint64_t leaving;    // flags of transports, [from]
  std::uint64_t railSizes;  // uint64 [dispatch, combine][domain]: terms

  std::uint64_t routeHeadersOut;  // Quad [to][routeTokensMax][headerQuads]
  std::uint64_t railTables;       // Quad [parity][domain][tokensMax][railQuads]
  std::uint64_t railTablesOut;    // Quad [domain][tokensMax][railQuads]
  std::uint64_t llRowsOut;        // [set][llTokensMax][rowBytesMax]: rows of tokens
  std::uint64_t llSideOut;        // [set][llTokensMax][sideBytesMax]
  std::uint64_t llToldOut;        // [set][to][llToldBytes]
  std::uint64_t llCombineIn;      // [set][from][llTokensMax][rowBytesMax]
  std::uint64_t llGradsIn;        // float [set][from][llTokensMax][topkMax]
  std::uint64_t llGradsOut;       // float [set][to][llTokensMax][topkMax]
  std::uint64_t railRowsOut;      // [tokensMax][rowBytesMax]: rows of tokens
  std::uint64_t railSideOut;      // [tokensMax][sideBytesMax]
  std::uint64_t railRows;         // [domain][tokensMax][rowBytesMax]
  std::uint64_t railSide;         // [domain][tokensMax][sideBytesMax]
  std::uint64_t railSumsOut;      // [domain][tokensMax][rowBytesMax]
  std::uint64_t railSums;         // [domain][tokensMax][rowBytesMax]
  std::uint64_t railGradsOut;     // float [domain][tokensMax][topkMax]: filled by the ranks of this domain
  std::uint64_t railGrads;        // float [domain][tokensMax][topkMax]
  int railQuads;
};

// The whole window.
struct WindowPlan : WindowLayout {
  RemoteLayout far;

  static WindowPlan of(const CommShape& shape);
};

// Where a rank wants its rows. It is sent to every peer with "output ready".
struct alignas(16) OutputRecord {
  std::uint64_t rows;     // window offset of the row buffer
  std::uint64_t side;     // window offset of the side buffer
  std::int64_t capacity;  // rows of the layout that the output holds
  std::int64_t staged;    // not 0: rows go to the staging area in FLAT order, and the
                          // owner places them; the area holds this many
  std::uint64_t terms;    // must agree: packDispatchTerms
  std::uint64_t reserved;
};

// Where a rank wants the scales of cast rows, or a payload, if they go straight to its output. It is sent with the
// output record. If grid.experts is not 0, the offsets that the grid needs lie in htScaleOffsets.
struct alignas(16) ScaleRecord {
  std::uint64_t scales;  // window offset
  ScaleGrid grid;
  int first, end;  // payloads only: range of its words among the row's words
};
inline constexpr int kScaleRecords = 1 + kPayloadsMax;  // records of a rank: one for scales, then one per payload

// Where a rank has the rows of a combine. It is sent to every peer with "rows ready".
struct alignas(16) CombineRecord {
  std::uint64_t rows;     // window offset
  std::int64_t capacity;  // rows that the staging area holds, if rows are prepared
  std::int64_t held;      // rows of the layout that the caller's rows can hold
  std::uint32_t terms;    // must agree: packCombineTerms
  std::int16_t prepared;  // 1: one row per token, in the staging area, in FLAT order; 0: rows in the handle's layout
  std::int8_t gradsMiss;  // 1: gradients are carried, but the caller has given none
  std::int8_t inWaves;    // 1: rows are handed over in waves; 0: all are there with the first wave
};

// One of the staging areas.
struct StagingArea {
  std::uint64_t rows, side;
};
inline StagingArea stagingAt(const CommShape& s, const WindowLayout& at, int area) {
  const std::int64_t before = area * s.stagingRows;
  return {at.staging + static_cast<std::uint64_t>(before * s.rowBytesMax),
          at.stagingSide + static_cast<std::uint64_t>(before * s.sideBytesMax)};
}

// Allocates areas one after another, each aligned.
class WindowAreas {
 public:
  std::uint64_t take(std::int64_t bytes) {
    const std::uint64_t begin = end_;
    end_ += static_cast<std::uint64_t>(roundUp(bytes, 256));
    return begin;
  }
  std::uint64_t end() const { return end_; }

 private:
  std::uint64_t end_ = 0;
};

// Areas that only communicators of several domains have.
inline void layOutRemoteLl(const CommShape& s, std::int64_t toldBytes, RemoteLayout& at, WindowAreas& areas) {
  const std::int64_t n = s.domains() > 1 ? s.nranks : 0, tokens = s.ll && n > 0 ? s.llTokensMax : 0;
  at.llRowsOut = areas.take(s.llSets * tokens * s.rowBytesMax);
  at.llSideOut = areas.take(s.llSets * tokens * s.sideBytesMax);
  at.llToldOut = areas.take(tokens > 0 ? s.llSets * n * toldBytes : 0);
  at.llCombineIn = areas.take(s.llSets * n * tokens * s.rowBytesMax);
  at.llGradsIn = areas.take(s.llSets * n * tokens * s.topkMax * 4);
  at.llGradsOut = areas.take(s.llSets * n * tokens * s.topkMax * 4);
}
inline void layOutRails(const CommShape& s, RemoteLayout& at, WindowAreas& areas) {
  const std::int64_t domains = s.domains() > 1 ? s.domains() : 0, tokens = s.ht && domains > 0 ? s.tokensMax : 0;
  at.railRowsOut = areas.take(tokens * s.rowBytesMax);
  at.railSideOut = areas.take(tokens * s.sideBytesMax);
  at.railRows = areas.take(domains * tokens * s.rowBytesMax);
  at.railSide = areas.take(domains * tokens * s.sideBytesMax);
  at.railSumsOut = areas.take(domains * tokens * s.rowBytesMax);
  at.railSums = areas.take(domains * tokens * s.rowBytesMax);
  at.railGradsOut = areas.take(domains * tokens * s.topkMax * 4);
  at.railGrads = areas.take(domains * tokens * s.topkMax * 4);
}

inline void layOutControl(const CommShape& s, WindowPlan& at, WindowAreas& areas) {
  const std::int64_t n = s.nranks, flags = n * std::int64_t{sizeof(Flag)};
  const std::int64_t headerBytes = headerQuads(s.topkMax) * std::int64_t{sizeof(Quad)};
  const std::int64_t domains = s.domains() > 1 ? s.domains() : 0, rails = domains * std::int64_t{sizeof(Flag)};
  at.countStride = static_cast<int>(roundUp(s.expertsMax + n + domains, 4)) + kTermWords;
  at.far.railQuads = 1 + destinationsPerToken(s.topkMax, s.domainRanks());

  at.routeCountsReady = areas.take(flags);
  at.routeHeadersReady = areas.take(flags);
  at.routeCountsRead = areas.take(flags);
  at.routeCountsAgain = areas.take(flags);
  at.htOutputReady = areas.take(flags);
  at.htRowsReady = areas.take(flags);
  at.htWeightsReady = areas.take(flags);
  at.htCombineDone = areas.take(kParities * flags);
  at.htRowWaves = areas.take(kHtWaves * flags);
  at.htCombineWaves = areas.take(kHtWaves * flags);
  at.far.htRailWaves = areas.take(kHtWaves * rails);
  at.far.htSumWaves = areas.take(kHtWaves * rails);
  at.far.htRailsFree = areas.take(rails);
  at.far.htSumsFree = areas.take(rails);
  at.far.leaving = areas.take(domains > 0 ? flags : 0);
  at.llRowsReady = areas.take(s.llSets * flags);
  at.llFree = areas.take(s.llSets * flags);
  at.llCombineSizes = areas.take(s.llSets * flags);
  at.llCombineReady = areas.take(s.llSets * flags);
  at.llCombineFree = areas.take(s.llSets * flags);
  at.llWeightsReady = areas.take(s.llSets * flags);
  at.llLastRows = areas.take(s.llSets * n * std::int64_t{sizeof(std::int32_t)});
  at.routeCounts = areas.take(kParities * n * at.countStride * 4);
  at.waveCounts = areas.take(s.ht ? kParities * n * kHtWaves * 4 : 0);
  at.htOutputs = areas.take(kParities * n * std::int64_t{sizeof(OutputRecord)});
  at.htScales = areas.take(kParities * n * kScaleRecords * std::int64_t{sizeof(ScaleRecord)});
  at.scaleOffsetsStride = static_cast<int>((s.expertsMax + n - 1) / n);
  at.htScaleOffsets = areas.take(s.ht ? kParities * n * at.scaleOffsetsStride * 4 : 0);
  at.htCombines = areas.take(kParities * n * std::int64_t{sizeof(CombineRecord)});
  at.llSizes = areas.take(s.llSets * n * std::int64_t{sizeof(std::uint64_t)});
  at.far.railSizes = areas.take(2 * rails);
  const std::int64_t llTokens = s.ll ? s.llTokensMax : 0, tokens = s.ht ? s.tokensMax : 0;
  at.routeTokensMax = static_cast<int>(tokens > llTokens ? tokens : llTokens);
  at.routeHeaders = areas.take(kParities * n * at.routeTokensMax * headerBytes);
  at.far.routeHeadersOut = areas.take(domains > 0 ? n * at.routeTokensMax * headerBytes : 0);
  const std::int64_t table = tokens * at.far.railQuads * std::int64_t{sizeof(Quad)};
  at.far.railTables = areas.take(kParities * domains * table);
  at.far.railTablesOut = areas.take(domains * table);
}

inline WindowPlan WindowPlan::of(const CommShape& s) {
  WindowPlan at{};
  WindowAreas areas;
  layOutControl(s, at, areas);
  at.controlBytes = areas.end();

  const std::int64_t n = s.nranks, llTokens = s.ll ? s.llTokensMax : 0, tokens = s.ht ? s.tokensMax : 0;
  at.llRows = areas.take(s.llSets * n * llTokens * s.rowBytesMax);
  at.llSide = areas.take(s.llSets * n * llTokens * s.sideBytesMax);
  at.llCombineRows = areas.take(s.llSets * n * llTokens * s.rowBytesMax);
  at.llCombineGrads = areas.take(s.llSets * llTokens * s.topkMax * 4);
  at.llWeights = areas.take(s.llSets * n * llTokens * s.topkMax * 4);
  const std::int64_t expertsOfRank = (s.expertsMax + n - 1) / n;
  at.llToldHead = static_cast<int>(roundUp(kToldWords + expertsOfRank, 4) * 4);
  at.llToldBytes = at.llToldHead + static_cast<int>(llTokens * headerQuads(s.topkMax)) * static_cast<int>(sizeof(Quad));
  at.llTold = areas.take(llTokens > 0 ? s.llSets * n * at.llToldBytes : 0);
  layOutRemoteLl(s, at.llToldBytes, at.far, areas);
  at.llBytes = areas.end() - at.controlBytes;

  const std::int64_t staging = s.ht ? s.stagingAreas * s.stagingRows : 0;
  at.htCombineGrads = areas.take(kParities * tokens * s.topkMax * 4);
  at.htWeights = areas.take(kParities * n * tokens * s.topkMax * 4);
  at.staging = areas.take(staging * s.rowBytesMax);
  at.stagingSide = areas.take(staging * s.sideBytesMax);
  layOutRails(s, at.far, areas);
  at.htBytes = areas.end() - at.controlBytes - at.llBytes;

  at.heap = areas.take(s.heapBytes);
  at.totalBytes = areas.end();
  return at;
}

}  // namespace moe
