// Combines whose rows travel in a wire format (rows/wire_row.h): sums that are coded, and sums of coded rows. Parts of
// rows are whole units here. A coded row is addressed as a whole.
#pragma once

#include "device/protocol/combine/weights.h"
#include "device/protocol/core/shares.h"

namespace moe {

// The part of a row in one of the caller's biases.
MOE_LANES const std::uint8_t* biasRow(const CombineArgs& a, int bias, const PartOf& part) {
  const std::uint8_t* rows = bias == 0 && a.bias0 != nullptr ? a.bias0 : a.bias1;
  return rows + static_cast<std::int64_t>(part.row) * a.rowBytes + part.begin;
}
MOE_LANES int biasCount(const CombineArgs& a) {
  return (a.bias0 != nullptr ? 1 : 0) + (a.bias1 != nullptr ? 1 : 0);
}

// A part of one of the caller's rows for an arrived token.
MOE_LANES const std::uint8_t* givenRow(const StepParams& p, const PartOf& part, int copy) {
  return p.combine.rows + static_cast<std::int64_t>(layoutRow(p.handle, part.row, copy)) * p.combine.rowBytes +
         part.begin;
}

MOE_LANES WireRow wireRowOf(const CombineArgs& a) {
  return {a.wire, a.elements};
}
// `parts`: how the row is divided.
MOE_LANES WirePart wirePartOf(const CombineArgs& a, const Parts& parts, const PartOf& part) {
  const auto element = [&](std::uint32_t bytes) {
    return static_cast<int>(a.rowType == kFp32 ? bytes / 4 : bytes / 2);
  };
  return {element(part.begin), element(part.begin + part.bytes), static_cast<int>(part.begin / parts.bytes),
          parts.count};
}
MOE_LANES PartOf wholeRow(const PartOf& part) {
  return {part.row, 0, 0};
}

// ---- The expert side: the coded sum of a token's rows here, in top-k order, for the Items of prepare.h. One list
// serves sums with and without weights, because coding takes many instructions.

template <bool kLand, class Items, class S>
struct CodedSums {
  static constexpr bool kLanding = kLand, kCodes = true, kReads = false;
  const S& s;
  Items items;
  bool zeros;  // makes zeros: no row counts, but owners wait for rows

  MOE_LANES int count() const { return items.count(); }
  MOE_LANES int rowType() const { return s.args.rowType; }
  MOE_LANES int termsMax() const { return expertRows(s.handle) ? s.handle.topk : 1; }
  MOE_LANES WireRow wire() const { return wireRowOf(s.args); }
  MOE_LANES WirePart part(int i) const { return wirePartOf(s.args, items.parts(), items.at(i)); }
  MOE_LANES int coded(int) const { return 0; }
  MOE_LANES SumJob job(int i) const {
    const int row = items.at(i).row;
    std::uint8_t* to = items.place(i, row);
    if (to == nullptr) return {};
    return {to, s.args.rowBytes, zeros ? 0 : expertRows(s.handle) ? layoutCopies(s.handle, row) : 1};
  }
  MOE_LANES const std::uint8_t* term(int i, int term) const { return givenRow(s.p, wholeRow(items.at(i)), term); }
  MOE_LANES bool weighs() const { return expertRows(s.handle) && s.args.weighted != 0; }
  MOE_LANES float weight(int i, int term) const {
    if (!weighs()) return 1.0f;
    const Quad* header = keptHeader(s.handle, items.at(i).row);
    return s.weights != 0 ? broughtWeight(s, header[0], header[1 + term]) : entryWeight(header[1 + term]);
  }
};

template <bool kLand, Combining S, class Items>
MOE_LANES void prepareCoded(const S& s, const Items& items, bool zeros) {
  s.warp.reduceRows(s.comm, CodedSums<kLand, Items, S>{s, items, zeros});
}

// ---- Sums of coded rows. `Sums` is a list of sums that has a `share` of parts, args(), and rows(i), which is the
// number of terms before the biases. `kAgain`: the sums are coded again.
template <class Sums, bool kAgain = false>
struct OfCoded : Sums {
  static constexpr bool kCodes = kAgain, kReads = true;

  MOE_LANES WireRow wire() const { return wireRowOf(this->args()); }
  MOE_LANES WirePart part(int i) const { return wirePartOf(this->args(), this->share.parts, this->share.at(i)); }
  MOE_LANES int coded(int i) const { return this->rows(i); }
  MOE_LANES SumJob job(int i) const {
    const SumJob job = Sums::job(i);
    return {job.out - this->share.at(i).begin, job.bytes, job.terms};
  }
  MOE_LANES const std::uint8_t* term(int i, int term) const { return Sums::term(i, term) - this->share.at(i).begin; }
};

}  // namespace moe
