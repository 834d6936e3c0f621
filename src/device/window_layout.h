// Where everything lies in the symmetric window. The same on every rank (but for the heap's size), computed from the
// communicator's shape alone, so control words never move with a call's sizes. docs/memory.md states the formula.
// Who writes, who reads and why nothing is overwritten early is in docs/protocol.md; in short, "[from]" is indexed by
// the rank that writes, and the window's owner is the only reader.
#pragma once

#include "device/flag.h"
#include "device/shape.h"

namespace moe {

struct WindowLayout {
  // Flags, [from] each.
  std::uint64_t routeCountsReady, routeHeadersReady;
  std::uint64_t htOutputReady, htRowsReady, htCombineReady;
  std::uint64_t llRowsReady, llCombineReady;
  // Flags, [parity][from]: split operations of two parities may end in any order.
  std::uint64_t htCombineAck, llDispatchAck, llCombineAck;
  std::uint64_t llCountsReady;  // the word's value is the row count

  // Small records.
  std::uint64_t routeCounts;  // int32 [parity][from][countStride]: entries per expert, rows per rank, signature
  std::uint64_t htOutputs;    // OutputRecord [parity][from]
  std::uint64_t llCounts;     // int32 [parity][from][llCountStride]: entries per local expert of the owner, signature

  // Rows.
  std::uint64_t routeHeaders;    // Quad [parity][from][tokensMax][headerQuads]
  std::uint64_t llHeaders;       // Quad [parity][from][llTokensMax][headerQuads]
  std::uint64_t llRows;          // [parity][from][llTokensMax][rowBytesMax]
  std::uint64_t llSide;          // [parity][from][llTokensMax][sideBytesMax]
  std::uint64_t llCombineRows;   // [parity][llTokensMax][slots][rowBytesMax]
  std::uint64_t llCombineGrads;  // float [parity][llTokensMax][topkMax]
  std::uint64_t htCombineRows;   // [tokensMax][slots][rowBytesMax]
  std::uint64_t htCombineGrads;  // float [tokensMax][topkMax]
  std::uint64_t staging;         // [stagingRows][rowBytesMax]
  std::uint64_t stagingSide;     // [stagingRows][sideBytesMax]
  std::uint64_t heap;

  std::uint64_t controlBytes, llBytes, htBytes, totalBytes;
  int countStride, llCountStride;

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
  const std::int64_t slots = slotsPerToken(s.topkMax, s.nranks);
  at.countStride = static_cast<int>(roundUp(s.expertsMax + n + 1, 4));
  at.llCountStride = static_cast<int>(roundUp((s.expertsMax + n - 1) / n + 1, 4));

  at.routeCountsReady = take(flags), at.routeHeadersReady = take(flags);
  at.htOutputReady = take(flags), at.htRowsReady = take(flags), at.htCombineReady = take(flags);
  at.llRowsReady = take(flags), at.llCombineReady = take(flags);
  at.htCombineAck = take(kParities * flags);
  at.llDispatchAck = take(kParities * flags), at.llCombineAck = take(kParities * flags);
  at.llCountsReady = take(kParities * flags);
  at.routeCounts = take(kParities * n * at.countStride * 4);
  at.htOutputs = take(kParities * n * std::int64_t{sizeof(OutputRecord)});
  at.llCounts = take(kParities * n * at.llCountStride * 4);
  at.controlBytes = end;

  const std::int64_t llTokens = s.ll ? s.llTokensMax : 0;
  at.llHeaders = take(kParities * n * llTokens * headerBytes);
  at.llRows = take(kParities * n * llTokens * s.rowBytesMax);
  at.llSide = take(kParities * n * llTokens * s.sideBytesMax);
  at.llCombineRows = take(kParities * llTokens * slots * s.rowBytesMax);
  at.llCombineGrads = take(kParities * llTokens * s.topkMax * 4);
  at.llBytes = end - at.controlBytes;

  const std::int64_t tokens = s.ht ? s.tokensMax : 0, staging = s.ht ? s.stagingRows : 0;
  at.routeHeaders = take(kParities * n * tokens * headerBytes);
  at.htCombineRows = take(kHtCombineParities * tokens * slots * s.rowBytesMax);
  at.htCombineGrads = take(kHtCombineParities * tokens * s.topkMax * 4);
  at.staging = take(staging * s.rowBytesMax);
  at.stagingSide = take(staging * s.sideBytesMax);
  at.htBytes = end - at.controlBytes - at.llBytes;

  at.heap = take(s.heapBytes);
  at.totalBytes = end;
  return at;
}

}  // namespace moe
