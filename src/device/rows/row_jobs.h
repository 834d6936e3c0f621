// The jobs of a policy's bulk operations, one row (or part of a row) at a time.
#pragma once

#include "device/rows/row_math.h"

namespace moe {

// A job of streamRows: copy `bytes` from `source` to those of `sinks` places that exist. Addresses are 16-byte aligned,
// and bytes a multiple of 16. Without sinks nothing is done.
struct CopyJob {
  const std::uint8_t* source;
  std::uint32_t bytes;
  int sinks;
};

// A job of streamPairs: the same for a row and its side payload, which go to the same places.
struct PairJob {
  CopyJob row;
  const std::uint8_t* side;
  std::uint32_t sideBytes;
};

// A place of a row, or of a pair.
struct Sink {
  std::uint8_t *row, *side;  // NULL: nowhere
  bool here;                 // surely in this rank's own memory: a policy may store there by other means
};

// Presents rows alone as pairs.
template <class JobOf>
MOE_LANES auto pairsOf(const JobOf& jobOf) {
  return [&jobOf](int i) { return PairJob{jobOf(i), nullptr, 0}; };
}

// streamPairs for policies that gain nothing from pairs.
template <class Warp, class JobOf, class SinkOf>
MOE_LANES void streamOneByOne(const Warp& warp, int n, int sinksMax, JobOf jobOf, SinkOf sinkOf) {
  warp.streamRows(
      n, sinksMax, [&](int i) { return jobOf(i).row; }, sinkOf);
  warp.streamRows(
      n, sinksMax,
      [&](int i) {
        const PairJob job = jobOf(i);
        return CopyJob{job.side, job.sideBytes, job.row.sinks};
      },
      [&](int i, int sink) {
        const Sink to = sinkOf(i, sink);
        return Sink{to.side, nullptr, to.here};
      });
}

// A job of reduceRows: the fp32 sum of `terms` rows, in order, rounded to the row type. No terms: zeros. No bytes:
// nothing.
struct SumJob {
  std::uint8_t* out;
  std::uint32_t bytes;
  int terms;
};

// A job of takeRows: the same, with the first `landing` rows in landing words (landing.h). These are waited for, taken
// and left empty.
struct TakeJob {
  SumJob sum;
  int landing;
};

// Runs `body` with the row type as a compile-time type: body(Bf16{}) and so on.
template <class Body>
MOE_LANES void withRowType(int rowType, Body body) {
  if (rowType == kBf16) {
    body(Bf16{});
  } else if (rowType == kFp16) {
    body(Fp16{});
  } else {
    body(Fp32{});
  }
}

}  // namespace moe
