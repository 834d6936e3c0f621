// High-throughput dispatch. Every rank sends the address of its output. Each warp reads a row once and stores it to its
// final row in every destination's output. One flag per source tells that all its rows are there. A row for a second
// local expert is a local copy, which is made while later rows are travelling; layouts with such rows go in waves. An
// output outside the window is filled from the staging area. Across domains each row takes the rails first. With a
// cast, the warps quantise a row as they store it. Flags: README.md, "HT dispatch".
#pragma once

#include "device/protocol/core/payloads.h"
#include "device/protocol/core/push.h"
#include "device/protocol/core/rails.h"
#include "device/protocol/core/seldom.h"
#include "device/view/terms.h"

namespace moe {

// ---- Casts and payloads in an HT dispatch: where each rank wants its scales and payloads, and the places of codes,
// scales and side payload. In an output these lie apart. In the staging area and on the rails a row is one piece, as in
// LL. Flags: README.md, "HT dispatch that casts".

// The record of the scales, or of payload `which` - 1.
MOE_LANES ScaleRecord* scaleRecord(const CommView& c, int rank, std::uint64_t epoch, int from, int which = 0) {
  return c.in<ScaleRecord>(rank, c.at.htScales) +
         (std::int64_t{parityOf(epoch) * c.nranks + from} * kScaleRecords + which);
}

// Where the rows of each expert of rank `from` begin: see ScaleRecord.
MOE_LANES std::int32_t* scaleOffsets(const CommView& c, int rank, std::uint64_t epoch, int from) {
  const std::int64_t first = std::int64_t{parityOf(epoch) * c.nranks + from} * c.at.scaleOffsetsStride;
  return c.in<std::int32_t>(rank, c.at.htScaleOffsets) + first;
}

// Whether the scales of each row are contiguous in the output and can be stored as whole Quads.
MOE_LANES bool scalesAreRows(const CastArgs& cast) {
  return cast.grid.blocked == 0 && cast.grid.wordStride == 1 && cast.words % 4 == 0 &&
         reinterpret_cast<std::uintptr_t>(cast.outScales) % sizeof(Quad) == 0;
}

// Writes the scale records. They lie next to the output record and are announced with it.
MOE_LANES void offerScales(const Moving auto& s) {
  const CastArgs& cast = s.p.dispatch.cast;
  const PayloadArgs& payloads = s.p.dispatch.payloads;
  s.warp.forEach(s.comm.domainSize * (1 + payloads.count), [&](int i) {
    const int which = i / s.comm.domainSize, rank = s.comm.domainFirst + i % s.comm.domainSize;
    ScaleRecord mine{cast.outScalesOffset, cast.grid, 0, 0};
    if (which > 0) {
      const PayloadWords& words = payloads.payload[which - 1];
      mine = {words.outOffset, words.grid, words.first, words.end};
    }
    s.warp.laneStore(scaleRecord(s.comm, rank, s.epoch, s.comm.rank, which), mine);
  });
  const ScaleGrid* ofExperts = gridOfExperts(s.p.dispatch);
  const int experts = s.p.dispatch.staged != 0 || ofExperts == nullptr ? 0 : ofExperts->experts;
  s.warp.forEach(s.comm.domainSize * experts, [&](int i) {
    const int e = i / s.comm.domainSize, rank = s.comm.domainFirst + i % s.comm.domainSize;
    s.warp.laneStore(scaleOffsets(s.comm, rank, s.epoch, s.comm.rank) + e, s.handle.arriving.expertOffsets[e]);
  });
}

// The final place of a row's scales, or of payload `which` - 1, if they are stored straight to the output.
MOE_LANES WordPlace wordPlace(const Moving auto& s, const Destination& to, int which) {
  const ScaleRecord record = s.warp.laneLoad(scaleRecord(s.comm, s.comm.rank, s.epoch, to.rank, which));
  const std::int32_t* offsets = scaleOffsets(s.comm, s.comm.rank, s.epoch, to.rank);
  const std::int64_t start = record.grid.start(to.row, [&](int e) { return s.warp.laneLoad(offsets + e); });
  return {s.comm.template in<std::uint32_t>(to.rank, record.scales) + start, record.grid.wordStride, record.first,
          record.end};
}
MOE_LANES CastSink scalePlace(const Moving auto& s, const Destination& to) {
  const WordPlace words = wordPlace(s, to, 0);
  return {nullptr, reinterpret_cast<std::uint8_t*>(words.at), words.wordStride};
}

// Stores a piece of a row's payloads at a rank of this domain: to the row's side payload `side` if that is not NULL,
// else straight to the final places.
MOE_LANES void laneStorePiece(const Moving auto& s, const Destination& to, std::uint8_t* side, int piece,
                              const Quad& quad) {
  const auto store = [&](auto* at, const auto& value) { s.warp.laneStore(at, value); };
  if (side != nullptr) return store(reinterpret_cast<Quad*>(side) + piece, quad);
  laneScatter(
      s.p.dispatch.payloads, piece, quad, [&](int i) { return wordPlace(s, to, 1 + i); }, store);
}

// Places of rows that are cast.
template <class Dispatch>
struct HtCastPlaces {
  static constexpr bool kScatters = true;
  const Dispatch& dispatch;

  MOE_LANES CastSink place(const Destination& to) const { return dispatch.castPlace(to); }
  MOE_LANES CastSink out(int token) const {
    return castPiece(dispatch.railPlace(token).row, dispatch.s.p.dispatch.cast.codeBytes);
  }
};

// Places of side payload without its rows, or of uncast rows without their side payload.
template <class Dispatch>
struct HtPiecePlaces {
  const Dispatch& dispatch;
  bool side;

  MOE_LANES Sink place(const Destination& to) const { return pieceOf(dispatch.finalPlace(to)); }
  MOE_LANES Sink out(int token) const { return pieceOf(dispatch.railPlace(token)); }

 private:
  MOE_LANES Sink pieceOf(const Sink& place) const { return {side ? place.side : place.row, nullptr, place.here}; }
};

MOE_LANES OutputRecord* outputRecord(const CommView& c, int rank, std::uint64_t epoch, int from) {
  return c.in<OutputRecord>(rank, c.at.htOutputs) + (parityOf(epoch) * c.nranks + from);
}

// The fault of the output of rank `to`, if any. For one lane.
MOE_LANES Failure outputFault(const StepParams& p, const OutputRecord& out, int to) {
  const HandleView& h = p.handle;
  const std::uint64_t terms = p.dispatch.terms;
  if (areLost(out.terms)) return {};
  if (out.terms != terms) return disagreement(Phase::dispatchOutput, to, terms, out.terms);
  if (out.staged != 0 && h.sent.flatRowsOf[to] > out.staged) {
    return tooLittle(Fault::staging, Phase::dispatchOutput, to, out.staged, h.sent.flatRowsOf[to]);
  }
  if (h.sent.layoutRowsOf[to] <= out.capacity) return {};
  return tooLittle(Fault::capacity, Phase::dispatchOutput, to, out.capacity, h.sent.layoutRowsOf[to]);
}

// The properties of a dispatch that are compile-time constants.
struct HtKind {
  bool inWaves;
  Duty duty = Duty::all;
  bool casts = false;
};

// Places of rows: finalPlace in this domain, or a row of the window from where it takes the rails.
template <class Dispatch>
struct HtPlaces {
  const Dispatch& dispatch;

  MOE_LANES Sink place(const Destination& to) const { return dispatch.finalPlace(to); }
  MOE_LANES Sink out(int token) const { return dispatch.railPlace(token); }
};

// Rows that lie `rowBytes` apart in the staging area, or first copies that are already in place.
struct HtSource {
  const HandleView& h;
  bool staged;
  const std::uint8_t* rows;
  std::uint32_t rowBytes;

  MOE_LANES const std::uint8_t* operator()(int row) const {
    return rows + static_cast<std::int64_t>(staged ? row : layoutRow(h, row, 0)) * rowBytes;
  }
};

// The dispatch in one domain. With one wave its work may be divided: separate warps describe the arriving rows. They
// wait for many small loads, which would hold up the warps that move rows.
template <HtKind kKind, Moves Warp>
class HtDispatch {
  static constexpr bool kInWaves = kKind.inWaves;
  static constexpr Duty kDuty = kKind.duty;
  static_assert(!kInWaves || kDuty == Duty::all);

 public:
  MOE_LANES HtDispatch(const Warp& warp, const StepParams& p, const Crew& crew)
      : HtDispatch(warp, p, crew, operation(p)) {}
  // Resumes an operation as another object (core/seldom.h).
  MOE_LANES HtDispatch(const Warp& warp, const StepParams& p, const Crew& crew, const Operation& which)
      : s(warp, p, crew.all, which), d_(p.dispatch), team_(crew.team) {}

  MOE_LANES void run() const {
    if (s.stopped()) return;
    if (s.sends && !begin()) return;
    const bool silent = deliversNothing(s);
    if (s.sends) s.noteBegin();
    if (silent || (s.sends && !outputsAreGood())) {
      const auto goOn = [](const HtDispatch& dispatch) { dispatch.runSilently(); };
      return seldom<HtDispatch>(s, goOn, Crew{s.w, team_}, s.operation());
    }
    const auto handOver = [&](int wave) {
      if (s.sends) sendWave(wave);
      return true;
    };
    inWaves<kInWaves>(s.handle, handOver, [&](int wave) { return !s.receives || take(wave); });
  }

  // ---- The part that an operation over rails uses for its own domain

  const Session<Warp> s;

  // Tells where this rank's output is, and waits for the outputs of all ranks of the domain. A step beside its route
  // then waits until the route has placed all rows.
  MOE_LANES bool begin() const {
    if (s.w.index == 0) offerOutput();
    if (!s.waitForDomain(s.comm.at.htOutputReady, s.epoch, Phase::dispatchOutput)) return false;
    return !isBeside() || s.waitForWarps(&s.comm.state->routePlaced, s.comm.state->besideRoutes + 1);
  }
  MOE_LANES Failure faultOf(int to) const { return outputFault(s.p, outputOf(to), to); }
  // Every rank checks every output of its domain, so that all ranks refuse together.
  MOE_LANES bool outputsAreGood() const {
    return areGood(s, domainRanks(s.comm), [&](int to) { return faultOf(to); });
  }
  MOE_LANES std::uint32_t outputsFault() const {
    return faultAmong(s, domainRanks(s.comm), [&](int to) { return faultOf(to); });
  }

  // The place of a row and of its side payload in this domain.
  MOE_LANES Sink finalPlace(const Destination& to) const {
    const OutputRecord out = outputOf(to.rank);
    const std::int64_t row = out.staged != 0 ? to.flat : to.row;
    return {s.comm.template in<std::uint8_t>(to.rank, out.rows) + row * d_.rowBytes,
            s.comm.template in<std::uint8_t>(to.rank, out.side) + row * d_.sideBytes, to.rank == s.comm.rank};
  }
  // The place of a row that is cast.
  MOE_LANES CastSink castPlace(const Destination& to) const {
    const OutputRecord out = outputOf(to.rank);
    auto* rows = s.comm.template in<std::uint8_t>(to.rank, out.rows);
    if (out.staged != 0) return castPiece(rows + std::int64_t{to.flat} * d_.rowBytes, d_.cast.codeBytes);
    CastSink place = scalePlace(s, to);
    place.codes = rows + std::int64_t{to.row} * d_.cast.codeBytes;
    return place;
  }
  // The place of the codes of such a row.
  MOE_LANES std::uint8_t* codePlace(const Destination& to) const {
    const OutputRecord out = outputOf(to.rank);
    auto* rows = s.comm.template in<std::uint8_t>(to.rank, out.rows);
    return out.staged != 0 ? rows + std::int64_t{to.flat} * d_.rowBytes
                           : rows + std::int64_t{to.row} * d_.cast.codeBytes;
  }
  // Stores a piece of a row's payloads to its place in this domain. For one lane.
  MOE_LANES void storePiece(const Destination& to, int piece, const Quad& quad) const {
    laneStorePiece(s, to, outputOf(to.rank).staged != 0 ? finalPlace(to).side : nullptr, piece, quad);
  }
  // Where the row of a token lies while it waits for the rails.
  MOE_LANES Sink railPlace(int token) const {
    const RemoteLayout& at = s.comm.far->at;
    return {s.comm.template mine<std::uint8_t>(at.railRowsOut) + std::int64_t{token} * d_.rowBytes,
            s.comm.template mine<std::uint8_t>(at.railSideOut) + std::int64_t{token} * d_.sideBytes, true};
  }

  // Stores this warp's share of tokens to their places.
  template <class Rows>
  MOE_LANES void push(Range tokens, Rows rows) const {
    if constexpr (kKind.casts) return pushCast(tokens, rows);
    using To = Outgoing<Session<Warp>, Rows, HtPlaces<HtDispatch>>;
    const To to{s, rows, {*this}, {s.handle}};
    const PayloadOut<To> out{to, d_.rows, shareOf(tokens, d_.parts, d_.rowBytes, team_)};
    if (d_.sideBytes == 0) {
      s.warp.streamRows(out);
    } else {
      s.warp.streamRows(RowsAndSidesOut<To>{out, d_});
    }
  }

  // Receives a wave. In a divided crew, the warps that move rows take part only if rows lie in the staging area.
  MOE_LANES bool take(int wave) const {
    if (kDuty == Duty::move && d_.staged == 0) return true;
    if (wave == 0 && isBeside() && !routeHasEnded()) return false;
    if (wave == 0 && kDuty != Duty::move) describeRows(s, team_);
    if (!waitForWave(s, rowFlags(), wave, Phase::dispatchRows)) return false;
    place(rowsOfWave(s.handle, kInWaves, wave));
    if constexpr (kInWaves) announceExperts(wave);
    return true;
  }

  // Runs a dispatch that delivers nothing, because outputs are not good or the handle has a fault. Flags and epochs
  // advance as usual.
  MOE_LANES void runSilently() const {
    if (s.sends) {
      MOE_ROLLED
      for (int wave = 0; wave < waves() && kDuty != Duty::describe; ++wave) announceWave(s, rowFlags(), wave, team_);
      endSend(true);
      if (isLast(s.w) && s.allHaveBegun()) {
        keepFirstFault(s.warp, s.handle, domainRanks(s.comm), [&](int to) { return faultOf(to); });
      }
    }
    if (!s.receives) return;
    if (kDuty != Duty::move) describeNothing(s.warp, s.p, filledRows(s.handle, s.comm.rank), team_);
    MOE_ROLLED
    for (int wave = 0; wave < waves(); ++wave) announceExperts(wave);
  }

  // Notes the state for the next step.
  MOE_LANES void endSend(bool silent = false) const {
    if (!isLast(s.w)) return;
    s.endEpoch([&] {
      s.handle.state->silent = silent ? 1 : 0;
      s.handle.state->dispatchEpoch = s.epoch;
      s.handle.state->dispatchHanded = s.number;
      if (isBeside()) ++s.comm.state->besideRoutes;
      handedCount(s.comm, s.handle, s.channel) = s.number;
    });
  }

  // Announces the experts that are complete. A wave by experts completes its own experts; otherwise all experts are
  // complete after the last wave.
  MOE_LANES void announceExperts(int wave) const {
    if (s.handle.arrivals == 0) return;
    const int experts = s.handle.map.count(s.comm.rank);
    if (s.handle.wavesByExpert()) return announceArrivals(s, wave, expertsOfWave(s.handle, wave, experts), s.w);
    if (wave == waves() - 1) announceArrivals(s, wave, {0, experts}, s.w);
  }

  MOE_LANES std::uint64_t rowFlags() const { return kInWaves ? s.comm.at.htRowWaves : s.comm.at.htRowsReady; }

 private:
  MOE_LANES bool isBeside() const { return s.sends && d_.besideRoute != 0; }
  // Whether the route that runs beside this step has ended well. It has failed if a peer's headers never came.
  MOE_LANES bool routeHasEnded() const {
    s.warp.awaitPredecessor();
    return !s.stopped();
  }
  MOE_LANES int waves() const { return wavesOf<kInWaves>(s.handle); }
  static MOE_LANES Operation operation(const StepParams& p) {
    const HandleState* state = p.handle.state;
    return handedOperation(p, kHtDispatchChannel, state->dispatchEpoch, state->dispatchHanded);
  }

  MOE_LANES void offerOutput() const {
    const OutputRecord mine{d_.outRowsOffset, d_.outSideOffset, d_.capacity, d_.staged, d_.terms, 0};
    s.warp.forEach(s.comm.domainSize, [&](int i) {
      s.warp.laneStore(outputRecord(s.comm, s.comm.domainFirst + i, s.epoch, s.comm.rank), mine);
    });
    if constexpr (kKind.casts) offerScales(s);
    s.tell(s.comm.at.htOutputReady, s.epoch);
  }
  MOE_LANES OutputRecord outputOf(int rank) const {
    return s.warp.laneLoad(outputRecord(s.comm, s.comm.rank, s.epoch, rank));
  }

  // Every second warp of a block sends payloads first, so that their many small loads overlap with the rows of other
  // warps.
  template <class Rows>
  MOE_LANES void pushCast(Range tokens, Rows rows) const {
    const bool piecesFirst = team_.index / team_.blocks % 2 != 0;
    MOE_ROLLED
    for (int turn = 0; turn < 2; ++turn) {
      if (piecesFirst != (turn == 0)) {
        pushRows(tokens, rows);
      } else if (d_.payloads.count != 0) {
        pushPayloads(tokens, rows);
      }
    }
  }
  // Casts each row as it is loaded, and stores codes and scales. Side payload, and rows that are not cast, are stored
  // separately.
  template <class Rows>
  MOE_LANES void pushRows(Range tokens, Rows rows) const {
    const bool casts = d_.cast.type != kNoCast;
    if (casts) {
      using To = Outgoing<Session<Warp>, Rows, HtCastPlaces<HtDispatch>>;
      const To to{s, rows, {*this}, {s.handle}};
      const auto elements = static_cast<std::uint32_t>(d_.cast.elements);
      s.warp.castRows(CastOut<To>{to, d_, shareOf(tokens, d_.parts, elements, team_)});
    }
    using Piece = Outgoing<Session<Warp>, Rows, HtPiecePlaces<HtDispatch>>;
    MOE_ROLLED
    for (int side = casts ? 1 : 0; side < 2; ++side) {
      if (side != 0 && d_.side == nullptr) break;
      const Piece to{s, rows, {*this, side != 0}, {s.handle}};
      const std::uint32_t bytes = side != 0 ? d_.sideBytes : d_.rowBytes;
      const Parts parts = side != 0 ? Parts{1, bytes} : d_.parts;
      s.warp.streamRows(PayloadOut<Piece>{to, side != 0 ? d_.side : d_.rows, shareOf(tokens, parts, bytes, team_)});
    }
  }
  template <class Rows>
  MOE_LANES void pushPayloads(Range tokens, Rows rows) const {
    const bool byRows = d_.payloads.byRows != 0 && d_.staged == 0;
    forPieces(s, tokens, byRows, team_, [&](int token, int piece) {
      if (!rows.any(token)) return;
      const Quad quad = laneTokenPiece(d_.payloads, token, piece);
      for (int i = 0; i < s.handle.destinationsMax; ++i) {
        const Destination to = s.handle.sent.destinations[std::int64_t{token} * s.handle.destinationsMax + i];
        if (to.rank == kNoRank) return;
        if (!rows.takes(to)) continue;
        if (s.isRemote(to.rank)) {
          return s.warp.laneStore(reinterpret_cast<Quad*>(railPlace(token).side) + piece, quad);
        }
        storePiece(to, piece, quad);
      }
    });
  }

  MOE_LANES void sendWave(int wave) const {
    if constexpr (kDuty != Duty::describe) {
      const Range all{0, d_.tokens};
      if constexpr (!kInWaves) {
        push(all, AllRows{});
      } else {
        push(s.handle.wavesByExpert() ? all : tokensOfWave(waves(), wave, all.end), RowsOfWave{s.handle, wave});
      }
      announceWave(s, rowFlags(), wave, team_);
    }
    if (wave == waves() - 1) endSend();
  }

  MOE_LANES void place(const ArrivingRows& rows) const {
    if (d_.outRows == nullptr || (d_.staged == 0 && !expertRows(s.handle))) return;
    if constexpr (kKind.casts) {
      placeCast(rows);
    } else {
      placeRows(rows, source(d_.outRowsOffset, d_.outRows, d_.rowBytes), d_.outRows, d_.rowBytes, d_.arriving);
    }
    if (d_.sideBytes == 0) return;
    const HtSource side = source(d_.outSideOffset, d_.outSide, d_.sideBytes);
    if constexpr (kKind.casts) {
      if (d_.payloads.count != 0) return placePayloads(rows, side);
    }
    placeRows(rows, side, d_.outSide, d_.sideBytes, Parts{1, d_.sideBytes});
  }
  // Places rows that were cast. In the staging area such a row is one piece. Contiguous scales are copied by the same
  // code as the codes.
  MOE_LANES void placeCast(const ArrivingRows& rows) const {
    const CastArgs& cast = d_.cast;
    const bool staged = d_.staged != 0, together = scalesAreRows(cast);
    const std::uint8_t* codes = staged ? s.comm.template mine<std::uint8_t>(d_.outRowsOffset) : d_.outRows;
    MOE_ROLLED
    for (int payload = 0; payload < (together ? 2 : 1); ++payload) {
      const bool isCodes = payload == 0;
      auto* out = isCodes ? d_.outRows : reinterpret_cast<std::uint8_t*>(cast.outScales);
      const std::uint32_t bytes = isCodes ? cast.codeBytes : static_cast<std::uint32_t>(cast.words) * 4;
      const std::uint8_t* in = isCodes ? codes : staged ? codes + cast.codeBytes : out;
      placeRows(rows, {s.handle, staged, in, staged ? d_.rowBytes : bytes}, out, bytes,
                isCodes ? d_.arriving : Parts{1, bytes});
    }
    if (together || cast.words == 0) return;
    const HtSource from{s.handle, staged, codes, staged ? d_.rowBytes : cast.codeBytes};
    const KeptArrivals to = arrivals();
    const auto scalesOf = [&](int row) -> ArrivedScales {
      if (staged) return ArrivedScales::behind(from(row), cast.codeBytes);
      return {scalesAt(cast, to, row, -1), cast.grid.wordStride};  // source of the scales: the copy that is already in
                                                                   // place
    };
    deliverScales<4>(s, rows, to, scalesOf, s.w);
  }
  // Staged payloads are side payload.
  MOE_LANES void placePayloads(const ArrivingRows& rows, const HtSource& from) const {
    const KeptArrivals to = arrivals();
    const auto pieceOf = [&](int row, int piece) -> Quad {
      if (from.staged) return s.warp.laneLoad(reinterpret_cast<const Quad*>(from(row)) + piece);
      // The source is the copy that is already in place.
      return laneGather(d_.payloads, piece, [&](const PayloadWords& payload, int word) {
        const WordPlace place = outputPlace(payload, to, row, -1);
        return s.warp.laneLoad(static_cast<const std::uint32_t*>(place.at + word * place.wordStride));
      });
    };
    deliverPayloads(s, rows, to, pieceOf, s.w);
  }
  // Makes all copies of staged rows; of other rows, all but the first copy.
  MOE_LANES KeptArrivals arrivals() const { return {s.handle, d_.staged != 0 ? 0 : 1}; }
  MOE_LANES HtSource source(std::uint64_t staging, const std::uint8_t* out, std::uint32_t rowBytes) const {
    const bool staged = d_.staged != 0;
    return {s.handle, staged, staged ? s.comm.template mine<std::uint8_t>(staging) : out, rowBytes};
  }
  MOE_LANES void placeRows(const ArrivingRows& rows, const HtSource& from, std::uint8_t* out, std::uint32_t rowBytes,
                           const Parts& parts) const {
    s.warp.streamRows(
        Delivered<ArrivingRows, KeptArrivals, HtSource>{partsOf(rows, parts, rowBytes, s.w), arrivals(), from, out});
  }

  const DispatchArgs& d_;
  WarpIndex team_;
};

}  // namespace moe
