// High-throughput dispatch: every rank says where its output is, each warp reads a row once and stores it to its final
// row in every destination's output, one flag per source tells that all are there. A second local expert's row is a
// local copy, made while later rows are on their way: such layouts go in waves. An output outside the window is filled
// from the staging area. Across domains each row takes the rails first. Flags: docs/internals/protocol.md, "HT
// dispatch".
#pragma once

#include "device/protocol/deliver.h"
#include "device/protocol/push.h"
#include "device/protocol/rails.h"

namespace moe {

MOE_LANES OutputRecord* outputRecord(const CommView& c, int rank, std::uint64_t epoch, int from) {
  return c.in<OutputRecord>(rank, c.at.htOutputs) + (parityOf(epoch) * c.nranks + from);
}

template <Moves Warp>
MOE_LANES void offerOutput(const Warp& warp, const CommView& c, const DispatchArgs& d, std::uint64_t epoch) {
  const OutputRecord mine{d.outRowsOffset, d.outSideOffset, d.capacity, d.staged, d.terms, 0};
  warp.forEach(c.domainSize, [&](int i) { warp.laneStore(outputRecord(c, c.domainFirst + i, epoch, c.rank), mine); });
  tell(warp, c, c.at.htOutputReady, epoch);
}

// What is wrong with the output of rank `to`, if anything. One lane.
MOE_LANES Failure outputFault(const HandleView& h, const DispatchArgs& d, const OutputRecord& out, int to) {
  if (out.terms != d.terms) return disagreement(Phase::dispatchOutput, to, d.terms, out.terms);
  if (out.staged != 0 && h.flatRowsOf[to] > out.staged) {
    return {0, Fault::staging, Phase::dispatchOutput, to, 0, 0, out.staged, h.flatRowsOf[to]};
  }
  const Fault fault = h.layoutRowsOf[to] > out.capacity ? Fault::capacity : Fault::none;
  return {0, fault, Phase::dispatchOutput, to, 0, 0, out.capacity, h.layoutRowsOf[to]};
}

// Every rank looks at every output of its domain, so that all of them refuse together.
template <Moves Warp>
MOE_LANES bool outputsAreGood(const Warp& warp, const StepParams& p, std::uint64_t epoch) {
  const CommView& c = p.comm;
  return allAreGood(warp, c, domainRanks(c), [&](int to) {
    return outputFault(p.handle, p.dispatch, warp.laneLoad(outputRecord(c, c.rank, epoch, to)), to);
  });
}

template <Moves Warp>
MOE_LANES bool outputsAreReady(const Warp& warp, const StepParams& p, std::uint64_t epoch, WarpIndex w) {
  const CommView& c = p.comm;
  if (w.index == 0) offerOutput(warp, c, p.dispatch, epoch);
  return waitForDomain(warp, c, c.at.htOutputReady, epoch, Phase::dispatchOutput) && outputsAreGood(warp, p, epoch);
}

// Where a row goes in this domain, and its side payload.
template <Moves Warp>
MOE_LANES Sink finalPlace(const Warp& warp, const StepParams& p, std::uint64_t epoch, const Destination& to) {
  const CommView& c = p.comm;
  const OutputRecord out = warp.laneLoad(outputRecord(c, c.rank, epoch, to.rank));
  const std::int64_t row = out.staged != 0 ? to.flat : to.row;
  return {c.in<std::uint8_t>(to.rank, out.rows) + row * p.dispatch.rowBytes,
          c.in<std::uint8_t>(to.rank, out.side) + row * p.dispatch.sideBytes, to.rank == c.rank};
}

template <Moves Warp, class Rows>
MOE_LANES void pushTokens(const Warp& warp, const StepParams& p, std::uint64_t epoch, Range tokens, Rows rows,
                          WarpIndex w) {
  const CommView& c = p.comm;
  const DispatchArgs& d = p.dispatch;
  const auto placeOf = [&](const Destination& to) { return finalPlace(warp, p, epoch, to); };
  const auto outOf = [&](int token) {
    const RemoteLayout& at = c.far->at;
    return Sink{c.mine<std::uint8_t>(at.railRowsOut) + std::int64_t{token} * d.rowBytes,
                c.mine<std::uint8_t>(at.railSideOut) + std::int64_t{token} * d.sideBytes, true};
  };
  if (d.sideBytes == 0) {
    pushPayload(warp, c, p.handle, d.rows, tokens, rows, d.rowBytes, d.parts, w, placeOf, outOf);
  } else {
    pushPairs(warp, c, p.handle, d, tokens, rows, w, placeOf, outOf);
  }
}

// Places one payload: all copies from the staging area, or only the further copies of rows that are in place.
template <Moves Warp>
MOE_LANES void placePayload(const Warp& warp, const StepParams& p, const ArrivingRows& rows, std::uint64_t staging,
                            std::uint8_t* out, std::uint32_t rowBytes, const Parts& parts, WarpIndex w) {
  const HandleView& h = p.handle;
  const bool staged = p.dispatch.staged != 0;
  if (!staged && !expertRows(h)) return;
  const std::uint8_t* arrived = staged ? p.comm.mine<std::uint8_t>(staging) : out;
  const int first = staged ? 0 : 1;  // copy 0 is in place
  deliverRows(
      warp, rows, out, rowBytes, parts, w,
      [&](int row) { return arrived + static_cast<std::int64_t>(staged ? row : layoutRow(h, row, 0)) * rowBytes; },
      [&](int row) { return layoutCopies(h, row) - first; },
      [&](int row, int copy) { return layoutRow(h, row, first + copy); });
}

template <Moves Warp>
MOE_LANES void placeRows(const Warp& warp, const StepParams& p, const ArrivingRows& rows, WarpIndex w) {
  const CommView& c = p.comm;
  const DispatchArgs& d = p.dispatch;
  placePayload(warp, p, rows, c.at.staging, d.outRows, d.rowBytes, d.arriving, w);
  if (d.sideBytes == 0) return;
  placePayload(warp, p, rows, c.at.stagingSide, d.outSide, d.sideBytes, Parts{1, d.sideBytes}, w);
}

template <int kWaves>
MOE_LANES std::uint64_t rowFlags(const CommView& c) {
  return kWaves == 1 ? c.at.htRowsReady : c.at.htRowWaves;
}

template <int kWaves, Moves Warp>
MOE_LANES void sendWave(const Warp& warp, const StepParams& p, std::uint64_t epoch, int wave, WarpIndex team) {
  const Range all{0, p.dispatch.tokens};
  if constexpr (kWaves == 1) {
    pushTokens(warp, p, epoch, all, AllRows{}, team);
  } else {
    const Range tokens = p.handle.wavesByExpert() ? all : tokensOfWave(kWaves, wave, all.end);
    pushTokens(warp, p, epoch, tokens, RowsOfWave{p.handle, wave}, team);
  }
  announceWave(warp, p.comm, rowFlags<kWaves>(p.comm), wave, team);
}

// Waves by experts end with the experts that they complete; others, with all of them at the end.
template <Moves Warp>
MOE_LANES void announceWaveArrivals(const Warp& warp, const CommView& c, const HandleView& h, int wave, WarpIndex w) {
  if (h.arrivals == 0) return;
  const int experts = h.map.count(c.rank);
  if (h.wavesByExpert()) return announceArrivals(warp, h, wave, expertsOfWave(wave, experts), w);
  if (wave == kHtWaves - 1) announceArrivals(warp, h, wave, {0, experts}, w);
}

// Of a divided crew those who move rows are needed again for what lies in the staging area alone.
template <int kWaves, Duty kDuty, Moves Warp>
MOE_LANES bool placeWave(const Warp& warp, const StepParams& p, std::uint64_t number, int wave, const Crew& crew) {
  if (wave == 0 && kDuty != Duty::move) describeRows(warp, p.comm, p.handle, p.dispatch, crew.team);
  if (kDuty == Duty::move && p.dispatch.staged == 0) return true;
  if (!waitForWave(warp, p.comm, rowFlags<kWaves>(p.comm), wave, number, Phase::dispatchRows)) return false;
  placeRows(warp, p, rowsOfWave(p.handle, kWaves, wave), crew.all);
  if constexpr (kWaves > 1) announceWaveArrivals(warp, p.comm, p.handle, wave, crew.all);
  return true;
}

// What a sending step leaves for the next one.
template <Moves Warp>
MOE_LANES void endHtSend(const Warp& warp, const StepParams& p, std::uint64_t epoch, std::uint64_t number,
                         WarpIndex w) {
  if (!isLast(w)) return;
  endEpoch(warp, p.comm, kHtDispatchChannel, epoch, [&] {
    p.handle.state->dispatchEpoch = epoch;
    p.handle.state->dispatchHanded = number;
    handedCount(p.comm, p.handle, kHtDispatchChannel) = number;
  });
}

// With one wave the work may be divided: describing what comes waits for many small loads, and those that move rows are
// not to wait for it.
template <int kWaves, Duty kDuty, Moves Warp>
MOE_LANES void htDispatch(const Warp& warp, const StepParams& p, const Crew& crew) {
  static_assert(kWaves == 1 || kDuty == Duty::all);
  const CommView& c = p.comm;
  const WarpIndex w = crew.all;
  HandleState* state = p.handle.state;
  const std::uint64_t epoch = operationEpoch(c, kHtDispatchChannel, p.phases, state->dispatchEpoch);
  const std::uint64_t number = handedNumber(c, p.handle, kHtDispatchChannel, p.phases, state->dispatchHanded);
  const bool sends = (p.phases & kSendPhase) != 0, receives = (p.phases & kReceivePhase) != 0;
  if (warp.stopped(c)) return;
  if (sends) {
    noteBegin(warp, c, kHtDispatchChannel, w);
    if (!outputsAreReady(warp, p, epoch, w)) return;
  }
  const auto handOver = [&](int wave) {
    if (!sends) return;
    if constexpr (kDuty != Duty::describe) sendWave<kWaves>(warp, p, epoch, wave, crew.team);
    if (wave == kWaves - 1) endHtSend(warp, p, epoch, number, w);
  };
  inWaves<kWaves>(handOver,
                  [&](int wave) { return !receives || placeWave<kWaves, kDuty>(warp, p, number, wave, crew); });
}

}  // namespace moe
