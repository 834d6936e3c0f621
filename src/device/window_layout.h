// Where everything lies in the symmetric window. The same on every rank (but for the heap's size), computed from the
// communicator's shape alone, so control words never move with a call's sizes. docs/memory.md states the formula.
// Who writes, who reads and why nothing is overwritten early is in docs/protocol.md; in short, "[from]" is indexed by
// the rank that writes, and the window's owner reads. But llCombineRows is written by its owner for the rank [from],
// and peers read those rows, and the rows that a CombineRecord names, and nothing else.
#pragma once

#include "device/flag.h"
#include "device/shape.h"

namespace moe {

struct WindowLayout {
  // Flags, [from] each.
  std::uint64_t routeCountsReady, routeHeadersReady;
  std::uint64_t htOutputReady, htRowsReady;
  std::uint64_t htCombineReady, htCombineDone;
  // Flags, [wave][from].
  std::uint64_t htRowWaves, htCombineWaves;
  // Flags, [set][from].
  std::uint64_t llRowsReady, llCombineReady, llCombineDone, llFree;

  // Small records.
  std::uint64_t routeCounts;  // int32 [parity][from][countStride]: entries per expert, rows per rank, signature
  std::uint64_t htOutputs;    // OutputRecord [parity][from]
  std::uint64_t htCombines;   // CombineRecord [from]
  std::uint64_t llSizes;      // int32 [set][from]: what must agree in a dispatch

  // Rows. A handle uses the beginning of each [from] or [set] part, packed for its own sizes.
  std::uint64_t llRows;          // [set][from][llTokensMax][rowBytesMax]
  std::uint64_t llSide;          // [set][from][llTokensMax][sideBytesMax]
  std::uint64_t llCombineRows;   // [set][from][llTokensMax][rowBytesMax]: what goes back to `from`, who reads it
  std::uint64_t llCombineGrads;  // float [set][llTokensMax][topkMax]
  std::uint64_t routeHeaders;    // Quad [parity][from][routeTokensMax][headerQuads]
  std::uint64_t htCombineGrads;  // float [tokensMax][topkMax]
  std::uint64_t staging;         // [stagingRows][rowBytesMax]
  std::uint64_t stagingSide;     // [stagingRows][sideBytesMax]
  std::uint64_t heap;

  std::uint64_t controlBytes, llBytes, htBytes, totalBytes;
  int countStride, routeTokensMax;

  static WindowLayout of(const CommShape& shape);
};

// Where a rank wants its rows, sent to every peer with "output ready".
struct alignas(16) OutputRecord {
  std::uint64_t rows;     // window offset of the row buffer
  std::uint64_t side;     // window offset of the side buffer
  std::int64_t capacity;  // rows of the layout that the output holds
  std::int64_t staged;  // not 0: rows go to the staging area, which holds so many, in FLAT order; the owner places them
  std::uint32_t rowBytes, sideBytes;  // must agree
  std::uint64_t reserved;
};

// Where a rank has the rows of a combine, sent to every peer with "rows ready".
struct alignas(16) CombineRecord {
  std::uint64_t rows;      // window offset
  std::int64_t capacity;   // of the staging area, if they are prepared
  std::uint32_t rowBytes;  // must agree
  std::int32_t prepared;   // 1: one row per token, in the staging area, in FLAT order; 0: as in the handle's layout
  std::uint64_t reserved;
};

inline WindowLayout WindowLayout::of(const CommShape& s) {
  WindowLayout at{};
  std::uint64_t end = 0;
  auto take = [&](std::int64_t bytes) {
    const std::uint64_t begin = end;
    end += static_cast<std::uint64_t>(roundUp(bytes, 256));
    return begin;
  };
  const std::int64_t n = s.nranks, flags = n * std::int64_t{sizeof(Flag)};
  const std::int64_t headerBytes = headerQuads(s.topkMax) * std::int64_t{sizeof(Quad)};
  at.countStride = static_cast<int>(roundUp(s.expertsMax + n + 1, 4));

  at.routeCountsReady = take(flags), at.routeHeadersReady = take(flags);
  at.htOutputReady = take(flags), at.htRowsReady = take(flags);
  at.htCombineReady = take(flags), at.htCombineDone = take(flags);
  at.htRowWaves = take(kHtWaves * flags), at.htCombineWaves = take(kHtWaves * flags);
  at.llRowsReady = take(kLlSets * flags), at.llFree = take(kLlSets * flags);
  at.llCombineReady = take(kLlSets * flags), at.llCombineDone = take(kLlSets * flags);
  at.routeCounts = take(kParities * n * at.countStride * 4);
  at.htOutputs = take(kParities * n * std::int64_t{sizeof(OutputRecord)});
  at.htCombines = take(n * std::int64_t{sizeof(CombineRecord)});
  at.llSizes = take(kLlSets * n * 4);
  const std::int64_t llTokens = s.ll ? s.llTokensMax : 0, tokens = s.ht ? s.tokensMax : 0;
  at.routeTokensMax = static_cast<int>(tokens > llTokens ? tokens : llTokens);
  at.routeHeaders = take(kParities * n * at.routeTokensMax * headerBytes);
  at.controlBytes = end;

  at.llRows = take(kLlSets * n * llTokens * s.rowBytesMax);
  at.llSide = take(kLlSets * n * llTokens * s.sideBytesMax);
  at.llCombineRows = take(kLlSets * n * llTokens * s.rowBytesMax);
  at.llCombineGrads = take(kLlSets * llTokens * s.topkMax * 4);
  at.llBytes = end - at.controlBytes;

  const std::int64_t staging = s.ht ? s.stagingRows : 0;
  at.htCombineGrads = take(tokens * s.topkMax * 4);
  at.staging = take(staging * s.rowBytesMax);
  at.stagingSide = take(staging * s.sideBytesMax);
  at.htBytes = end - at.controlBytes - at.llBytes;

  at.heap = take(s.heapBytes);
  at.totalBytes = end;
  return at;
}

}  // namespace moe
