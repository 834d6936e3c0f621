// Payloads: their words lie at strides at the sender and the receiver, and without gaps on the wire, as side payload.
// Lanes handle them there in pieces of 16 bytes. README.md, "Payloads".
#pragma once

#include "device/protocol/core/deliver.h"

namespace moe {

// The number of pieces of a row's payloads.
MOE_LANES int payloadPieces(const DispatchArgs& d) {
  return static_cast<int>(d.sideBytes / sizeof(Quad));
}

// Where the words of one payload of a row go: the first word to `at`, and the others at multiples of `wordStride`. This
// payload has the row's words from `first` to `end`.
struct WordPlace {
  std::uint32_t* at;
  std::int64_t wordStride;
  int first, end;
};

// Gathers the words of a piece with load(payload, word in the payload). Words that belong to no payload are 0.
template <class Load>
MOE_LANES Quad laneGather(const PayloadArgs& payloads, int piece, Load load) {
  std::uint32_t words[kQuadWords];
  MOE_UNROLLED
  for (int i = 0; i < kQuadWords; ++i) {
    const int word = piece * kQuadWords + i;
    if (word < payloads.words()) {
      const PayloadWords& from = payloads.payload[payloads.of(word)];
      words[i] = load(from, word - from.first);
    } else {
      words[i] = 0;
    }
  }
  return {words[0], words[1], words[2], words[3]};
}

// Scatters the words of a piece to their places placeOf(payload) with store(address, word or whole piece).
template <class PlaceOf, class Store>
MOE_LANES void laneScatter(const PayloadArgs& payloads, int piece, const Quad& quad, PlaceOf placeOf, Store store) {
  const std::uint32_t words[kQuadWords] = {quad.x, quad.y, quad.z, quad.w};
  const int begin = piece * kQuadWords;
  WordPlace to{};
  MOE_UNROLLED
  for (int i = 0; i < kQuadWords; ++i) {
    const int word = begin + i;
    if (word >= payloads.words()) break;
    if (word >= to.end) {
      const int payload = payloads.of(word);
      to = placeOf(payload);
      auto* whole = to.at + (begin - to.first);
      const bool together = i == 0 && to.wordStride == 1 && begin >= to.first && begin + kQuadWords <= to.end;
      if (together && reinterpret_cast<std::uintptr_t>(whole) % sizeof(Quad) == 0) {
        store(reinterpret_cast<Quad*>(whole), quad);
        return;
      }
      // A rank may have other payloads although its terms are the same. Do not write beyond its payloads.
      if (word < to.first || word >= to.end) {
        to.end = payloads.payload[payload].end;
        to.at = nullptr;
      }
    }
    if (to.at != nullptr) store(to.at + (word - to.first) * to.wordStride, words[i]);
  }
}

// Calls body(row, piece) on one lane for each piece in this warp's share of rows [begin, end). Neighbouring lanes take
// neighbouring pieces or, with `byRows`, neighbouring rows.
template <class Body>
MOE_LANES void forPieces(const Moving auto& s, Range rows, bool byRows, WarpIndex team, Body body) {
  const int count = rows.end - rows.begin, pieces = payloadPieces(s.p.dispatch);
  const Slice slice = sliceOf(count * pieces, team);
  s.warp.forEach(slice.count, [&](int i) {
    const int item = slice.begin + i;
    body(rows.begin + (byRows ? item % count : item / pieces), byRows ? item / count : item % pieces);
  });
}

// A piece of a token's payloads, from the caller's arrays.
MOE_LANES Quad laneTokenPiece(const PayloadArgs& payloads, int token, int piece) {
  return laneGather(payloads, piece, [&](const PayloadWords& from, int word) {
    return from.in[std::int64_t{token} * from.inRowStride + std::int64_t{word} * from.inWordStride];
  });
}

// The place of a payload in this rank's output, for copy `copy` of an arrived row.
MOE_LANES WordPlace outputPlace(const PayloadWords& payload, const auto& arrivals, int row, int copy) {
  const std::int64_t start = gridStart(payload.grid, arrivals, row, copy);
  return {payload.out + start, payload.grid.wordStride, payload.first, payload.end};
}

// Copies the payloads of some rows from pieceOf(row, piece) to their places in the caller's outputs.
template <class Rows>
MOE_LANES void deliverPayloads(const Moving auto& s, const Rows& rows, const auto& arrivals, const auto& pieceOf,
                               WarpIndex team) {
  const PayloadArgs& payloads = s.p.dispatch.payloads;
  forPieces(s, {rows.begin, rows.end}, payloads.byRows != 0, team, [&](int number, int piece) {
    const int row = rows.row(number), copies = arrivals.copies(row);
    if (copies <= 0) return;
    const Quad quad = pieceOf(row, piece);
    for (int copy = 0; copy < copies; ++copy) {
      laneScatter(
          payloads, piece, quad, [&](int i) { return outputPlace(payloads.payload[i], arrivals, row, copy); },
          [](auto* at, const auto& value) { *at = value; });
    }
  });
}

}  // namespace moe
