// Combine of HT and of LL RANK_MAJOR. For other LL layouts see ll/combine.h. The token's owner reads the rows of its
// token from the windows of other ranks and sums them, first those of its domain in rank order. Ranks of other domains
// put their rows into the owner's window (LL), or the owner's rail peers put the sums of their domains there (HT). If
// peers cannot read the rows, or if there are rows per expert, the expert side first makes one row per token, in window
// memory of its own (HT: the staging area, LL: slots like those in which the rows came). Flags: README.md.
#pragma once

#include "device/policy/contract.h"
#include "device/protocol/combine/prepare.h"
#include "device/protocol/core/seldom.h"
#include "device/protocol/core/shares.h"

namespace moe {

// The sums of an HT combine for which no rows count: the biases, or zeros, and no gradients. The arrays are the
// caller's on this rank, so no flag is needed. It is not inlined, because it is seldom needed.
template <Moves Warp>
MOE_SELDOM void sumNothing(Warp warp, const StepParams& p, WarpIndex w) {
  const CombineArgs& a = p.combine;
  const Slice slice = sliceOf(a.tokens, w);
  const int quads = static_cast<int>(a.rowBytes / sizeof(Quad));
  MOE_ROLLED
  for (std::int64_t token = slice.begin; token < slice.begin + slice.count; ++token) {
    warp.forEach(quads, [&](int i) {
      const std::int64_t at = token * quads + i;
      withRowType(a.rowType, [&](auto type) {
        Accumulator<decltype(type)> sum;
        for (const std::uint8_t* bias : {a.bias0, a.bias1}) {
          if (bias != nullptr) sum.template add<false>(reinterpret_cast<const Quad*>(bias)[at], 1.0f);
        }
        reinterpret_cast<Quad*>(a.out)[at] = sum.rounded();
      });
    });
  }
  if (a.outWeightGrads == nullptr) return;
  const std::int64_t first = std::int64_t{slice.begin} * p.handle.topk;
  warp.forEach(slice.count * p.handle.topk, [&](int i) { a.outWeightGrads[first + i] = 0.0f; });
}

// The fault of the rows that rank `from` offers, if any. One lane calls it.
MOE_LANES Failure combineFault(const StepParams& p, const CombineRecord& record, int from) {
  if (areLost(record.terms)) return {};
  if (record.terms != p.combine.terms) {
    return disagreement(Phase::combineRows, from, p.combine.terms, record.terms);
  }
  return rowsFault(p.handle, record, from);
}

// The owner's sums: a token's rows in the order of its destinations, then the biases. `From` has
// partialRow(destination), which is the address of the token's row at a destination, and mayRead(), which says when
// rows may be read.
template <class From>
struct TokenSums {
  const From& from;
  const StepParams& p;
  int biases;
  PartShare share;

  MOE_LANES const CombineArgs& args() const { return p.combine; }
  MOE_LANES int count() const { return share.count(); }
  MOE_LANES int rows(int i) const { return p.handle.sent.destinationCount[share.at(i).row]; }
  MOE_LANES int rowType() const { return p.combine.rowType; }
  MOE_LANES int termsMax() const { return p.handle.destinationsMax + biases; }
  MOE_LANES bool mayRead() const { return from.mayRead(); }
  MOE_LANES SumJob job(int i) const {
    const PartOf part = share.at(i);
    std::uint8_t* out = p.combine.out + static_cast<std::int64_t>(part.row) * p.combine.rowBytes;
    return {out + part.begin, part.bytes, p.handle.sent.destinationCount[part.row] + biases};
  }
  MOE_LANES const std::uint8_t* term(int i, int term) const {
    const PartOf part = share.at(i);
    const int bias = term - p.handle.sent.destinationCount[part.row];
    if (bias >= 0) return biasRow(p.combine, bias, part);
    return from.partialRow(destination(part.row, term)) + part.begin;
  }
  MOE_LANES const Destination& destination(int token, int term) const {
    return p.handle.sent.destinations[token * p.handle.destinationsMax + term];
  }
};
// The same for coded rows, but for the token's row at this rank, which need not be coded yet.
template <class From>
struct TokenSumsOfCoded : OfCoded<TokenSums<From>> {
  MOE_LANES bool isOwn(int i, int term) const {
    if (this->args().ownRows == 0 || term >= this->rows(i)) return false;
    return this->destination(this->share.at(i).row, term).rank == this->p.comm.rank;
  }
};

// HT: keeps the fault of the first bad record. One warp calls it.
template <Moves Warp>
MOE_SELDOM void keepRecordsFault(Warp warp, const StepParams& p, std::uint64_t epoch) {
  keepFirstFault(warp, p.handle, domainRanks(p.comm), [&](int from) {
    return combineFault(p, warp.laneLoad(combineRecord(p.comm, epoch, p.comm.rank, from)), from);
  });
}

MOE_LANES Operation combineOperation(const StepParams& p) {
  const HandleState* state = p.handle.state;
  return withWeights(p, handedOperation(p, combineChannel(p.handle), state->combineEpoch, state->combineHanded));
}

// Notes what a sending step leaves for the next one. Only the last warp calls it. Nothing that follows in this step may
// read the words that change. `silent`: the step gave zeros.
template <bool kMayBeLl, Combining S>
MOE_LANES void endCombineSend(const S& s, bool silent) {
  CommState* state = s.comm.state;
  const HandleView& h = s.handle;
  const bool lowLatency = kMayBeLl && h.lowLatency != 0;
  if (silent && lowLatency && s.allHaveBegun()) keepLlRowsFault(s.warp, s.p);
  s.endEpoch([&] {
    h.state->silent = silent ? 1 : 0;
    h.state->combineEpoch = s.epoch;
    h.state->combineHanded = s.number;
    handedCount(s.comm, h, s.channel) = s.number;
    noteWeights(s);
    if (lowLatency) {
      state->llUncombined[h.llSet] = 0;
      state->llUsed[h.llSet] = 1;
    }
  });
}

// `kInWaves`: HT in waves. Without, it is HT at once, or LL. Ranks of an HT combine need not choose the same.
template <bool kInWaves, Moves Warp, bool kCoded = false>
class Combine {
 public:
  MOE_LANES Combine(const Warp& warp, const StepParams& p, WarpIndex w) : Combine(warp, p, w, combineOperation(p)) {}
  // Resumes an operation (core/seldom.h).
  MOE_LANES Combine(const Warp& warp, const StepParams& p, WarpIndex w, const Operation& which)
      : s(warp, p, w, which) {}

  MOE_LANES void run() const {
    std::uint32_t uncombined = lowLatency() ? s.comm.state->llUncombined[s.handle.llSet] : 0, fault = knownFault(s);
    std::uint64_t epoch = s.epoch, number = s.number;
    if (s.stopped(uncombined, fault, epoch, number)) return;
    // In HT all ranks then discard the combine, and sum nothing. In LL only this rank does, and its rows count as
    // zeros.
    const bool known = lowLatency() ? s.sends && givesZeros(s, fault) : fault != 0;
    bool silent = known;
    if (s.sends && !begin(uncombined != 0, silent)) return;
    if (!runWaves(silent) || !s.receives) return;
    if (!lowLatency() && silent) {
      sumNothing(s.warp, s.p, s.w);
      if (!known && isLast(s.w) && s.allHaveBegun()) keepRecordsFault(s.warp, s.p, s.epoch);
      return endReading();
    }
    end();
  }

  // ---- The part that an operation over rails uses for its own domain

  const CombineSession<Warp, kCoded> s;

  // Does everything that must precede the first wave. `uncombined`: the set's last operation was a dispatch.
  MOE_LANES bool begin(bool uncombined, bool silent = false) const {
    if (!bringWeights(s)) return false;
    if (lowLatency() && speaksAtOnce(silent)) speak();
    s.noteBegin();
    if (!lowLatency()) {
      if (s.w.index == 0) offerRows();
      return true;
    }
    const bool writes = prepares(s.args) || silent || tellsTerms(s.w);
    if (!uncombined && !waitForReaders(s, writes)) return false;
    if (tellsTerms(s.w)) tellTerms(s);
    return true;
  }

  // Runs one wave of the expert side, of which this warp has a share. False if a wait failed.
  MOE_LANES bool handOver(int wave, WarpIndex team, bool silent) const {
    const bool zeros = silent && lowLatency();
    if (speaksAtOnce(silent)) {
      if (!lowLatency() && wave == 0) speak();
      return true;
    }
    if (zeros && !kCoded) {
      if constexpr (!kInWaves && !kCoded) {
        seldom<Combine>(
            s, [](const Combine& combine) { combine.prepareZeros(); }, s.w, s.operation());
      }
    } else if (zeros || (!silent && mayPrepare())) {
      if ((zeros || s.args.inPlace == 0) && !prepareWave(wave, team, zeros)) return false;
      if (s.args.grads != 0 && wave == 0) pushWeightGrads(s, zeros);
    }
    if (kInWaves || lowLatency()) {
      announceWave(s, s.area.ready, wave, team);
    } else {
      announceWaves(s, s.area.ready, s.w);
    }
    return true;
  }

  MOE_LANES Failure faultOf(int from) const { return combineFault(s.p, recordOf(from), from); }
  // Whether one of the domain's records is bad, and whether a rank goes in waves.
  MOE_LANES void lookAtRecords(bool* bad, bool* inWaves) const {
    constexpr int kBad = 1 << 16;
    const auto valueOf = [&](int i) {
      const int from = s.comm.domainFirst + i;
      const CombineRecord theirs = recordOf(from);
      return (combineFault(s.p, theirs, from).fault != Fault::none ? kBad : 0) + theirs.inWaves;
    };
    const int found = s.warp.scanInOrder(s.comm.domainSize, valueOf, [](int, int) {});
    *bad = found >= kBad;
    *inWaves = found % kBad != 0;
  }
  MOE_LANES std::uint32_t recordsFault() const {
    return faultAmong(s, domainRanks(s.comm), [&](int from) { return faultOf(from); });
  }

  // Runs the owner's part of a wave, of which this warp has a share. LL looks rows up while it waits; HT needs the
  // records before it can find a row. Every rank checks every record of its domain, so that either all of them discard
  // the combine (`silent`), or none does. `first`: this warp has taken no wave yet.
  MOE_LANES bool sumWave(int wave, WarpIndex team, bool first, bool& silent) const {
    if (!lowLatency()) {
      if (silent) return true;
      if (first) {
        bool othersInWaves = false;
        if (!rowsAreThere(0)) return false;
        lookAtRecords(&silent, &othersInWaves);
        if (silent) return true;
        if (!kInWaves && othersInWaves && !rowsAreThere(s.handle.waves - 1)) return false;
      }
      if (wave != 0 && !rowsAreThere(wave)) return false;
    }
    return sumRows(wave, team);
  }
  // Sums the rows of a wave whose records are good.
  MOE_LANES bool sumRows(int wave, WarpIndex team) const {
    const bool looksAhead = lowLatency();
    const From from{*this, wave, looksAhead};
    const Range tokens = tokensOfWave(waves(), wave, s.args.tokens);
    return s.warp.reduceRows(s.comm,
                             Sums{from, s.p, biasCount(s.args), shareOf(tokens, s.args.parts, s.args.rowBytes, team)});
  }

  // The address at which this rank reads a token's row of destination `to`.
  MOE_LANES const std::uint8_t* partialRow(const Destination& to) const {
    const CommView& c = s.comm;
    const std::uint32_t bytes = s.args.wireBytes;
    if (s.args.ownRows != 0 && to.rank == c.rank) {
      return s.args.rows + static_cast<std::int64_t>(to.row) * s.args.rowBytes;
    }
    const bool remote = s.isRemote(to.rank);
    if (remote && !lowLatency()) {
      const int domain = to.rank / c.domainSize;
      return c.mine<std::uint8_t>(railRow(c, c.far->at.railSums, c.rowBytesMax, bytes, domain, to.index));
    }
    if (remote) return llSlot(c, s.handle, c.rank, c.far->at.llCombineIn, c.rowBytesMax, bytes, to.rank, to.index);
    if (lowLatency()) {
      return llSlot(c, s.handle, to.rank, c.at.llCombineRows, c.rowBytesMax, bytes, c.rank, to.index);
    }
    const CombineRecord at = recordOf(to.rank);
    const std::int64_t row = at.prepared != 0 ? to.flat : to.row;
    return c.in<std::uint8_t>(to.rank, at.rows) + row * bytes;
  }

  // LL: makes zeros as the rows and gradients that owners wait for.
  MOE_LANES void prepareZeros() const {
    prepareZeroRows<false>(s, PreparedWave<false>{s.w, 0}.items(s.p));
    if (s.args.grads != 0) pushWeightGrads(s, true);
  }

  // Ends the sending phase: the last warp notes what the next step needs.
  MOE_LANES void endSend(bool silent = false) const {
    if (isLast(s.w)) endCombineSend<!kInWaves>(s, silent);
  }

  // Ends the receiving phase. LL slots belong to the library until the next dispatch, whose rows from all peers show
  // that they have read the slots. HT rows belong to the caller, who may overwrite them when the step has ended. So the
  // step ends only when the last peer has read them.
  MOE_LANES void end() const {
    if (s.args.outWeightGrads != nullptr) takeWeightGrads(s);
    if (!lowLatency()) endReading();
  }
  MOE_LANES void endReading() const {
    s.announce(doneFlags(), Meeting::taken, s.w);
    if (s.w.index == 0) s.waitForDomain(doneFlags(), doneCount(), Phase::combineDone);
  }

 private:
  // The rows that TokenSums reads in a wave.
  struct From;
  using Sums = std::conditional_t<kCoded, TokenSumsOfCoded<From>, TokenSums<From>>;
  // Rows that are awaited go in waves (HT), or may land (LL), in a step of their own.
  static constexpr bool kWaits = Warp::kPicks && (kInWaves || !Warp::kLandsRows);
  struct From {
    const Combine& combine;
    int wave;
    bool waits;  // waits for rows when they have been looked up

    MOE_LANES const std::uint8_t* partialRow(const Destination& to) const { return combine.partialRow(to); }
    MOE_LANES bool mayRead() const {
      if (!waits) return true;
      const auto& session = combine.s;
      return combine.rowsAreThere(wave) && (!isLast(session.w) || termsAgree(session, allRanks(session.comm)));
    }
  };

  MOE_LANES int waves() const { return wavesOf<kInWaves>(s.handle); }

  // LL has one wave, so code for several waves contains nothing of LL.
  MOE_LANES bool lowLatency() const { return !kInWaves && s.handle.lowLatency != 0; }

  // True if no rows must be made first, so that one warp sets the flag for all. In LL it does so before anything else,
  // because the others wait for this flag; in HT it does so after the record.
  MOE_LANES bool speaksAtOnce(bool silent) const {
    return !prepares(s.args) && s.receives && !(silent && lowLatency());
  }
  MOE_LANES void speak() const {
    if (s.w.index != 0) return;
    lowLatency() ? s.tell(s.area.ready, s.number) : tellWaves(s, s.area.ready);
  }

  MOE_LANES void offerRows() const {
    CombineRecord mine = ownRecord(s.args);
    mine.inWaves = kInWaves && !speaksAtOnce(false) ? 1 : 0;
    s.warp.forEach(s.comm.domainSize,
                   [&](int i) { s.warp.laneStore(record(s.comm.domainFirst + i, s.comm.rank), mine); });
  }
  MOE_LANES CombineRecord recordOf(int rank) const { return s.warp.laneLoad(record(s.comm.rank, rank)); }
  MOE_LANES CombineRecord* record(int rank, int from) const { return combineRecord(s.comm, s.epoch, rank, from); }

  // Two outstanding combines may be completed in any order, but combines of the same parity are completed in order. So
  // the flags of a parity count its combines.
  MOE_LANES std::uint64_t doneFlags() const { return waveFlags(s.comm, s.comm.at.htCombineDone, parityOf(s.epoch)); }
  MOE_LANES std::uint64_t doneCount() const { return (s.epoch + 1) / kParities; }

  MOE_LANES bool runWaves(bool& silent) const {
    const auto send = [&](int wave, WarpIndex team, bool last) {
      return !s.sends || sendWave(wave, team, last, silent);
    };
    const auto take = [&](int wave, WarpIndex team, bool first) {
      return !s.receives || sumWave(wave, team, first, silent);
    };
    if constexpr (kInWaves) {
      return inDividedWaves(s.handle, waveRoleOf(s.args.makers, s.w), s.w, send, take);
    } else {
      return send(0, s.w, true) && take(0, s.w, true);
    }
  }
  // `last`: this warp hands over no further wave.
  MOE_LANES bool sendWave(int wave, WarpIndex team, bool last, bool silent) const {
    if (!handOver(wave, team, silent)) return false;
    if (s.split() && lowLatency()) llPutSums(s);
    if (last) endSend(silent);
    return true;
  }

  // If this rank offers too few rows, it reads and makes none. Every rank learns this from the record.
  MOE_LANES bool mayPrepare() const {
    return lowLatency() || rowsFault(s.handle, ownRecord(s.args), s.comm.rank).fault == Fault::none;
  }
  MOE_LANES bool prepareWave(int wave, WarpIndex team, bool zeros) const {
    return prepareRows<false, kWaits>(s, PreparedWave<kInWaves>{team, wave}, zeros);
  }

  MOE_LANES bool rowsAreThere(int wave) const {
    const Range ranks = lowLatency() ? allRanks(s.comm) : domainRanks(s.comm);
    return s.waitForRanks(waveFlags(s.comm, s.area.ready, wave), ranks, s.number, Phase::combineRows);
  }
};

// ---- HT combine across domains. For each token that came over a rail, this rank sums the token's rows in this domain,
// as if the token were its own. It puts the sum to the owner, which is its rail peer. This belongs to the sending
// phase, as in dispatch. The owner adds the sums of other domains to the rows of its own.

// A list for reduceRows: the sums of a wave's rows for owners in other domains. They are stored where they wait to be
// put.
template <class Here>
struct RailSums {
  const Here& here;
  RailRows waveRows;
  PartShare share;

  MOE_LANES const CombineArgs& args() const { return here.s.args; }
  MOE_LANES int count() const { return share.count(); }
  MOE_LANES int rows(int i) const { return waveRows.h.rails.count[railRowAt(waveRows, share.at(i).row).table]; }
  MOE_LANES int rowType() const { return here.s.args.rowType; }
  MOE_LANES int termsMax() const { return waveRows.h.destinationsMax; }
  MOE_LANES SumJob job(int i) const {
    const CommView& c = here.s.comm;
    const PartOf part = share.at(i);
    const RailRow row = railRowAt(waveRows, part.row);
    auto* out =
        c.mine<std::uint8_t>(railRow(c, c.far->at.railSumsOut, c.rowBytesMax, args().wireBytes, row.domain, row.index));
    return {out + part.begin, part.bytes, waveRows.h.rails.count[row.table]};
  }
  MOE_LANES const std::uint8_t* term(int i, int term) const {
    const PartOf part = share.at(i);
    const RailRow row = railRowAt(waveRows, part.row);
    return here.partialRow(waveRows.h.rails.to[row.table * waveRows.h.railDestinationsMax() + term]) + part.begin;
  }
};

template <Moves Warp, bool kCoded = false>
class CombineRails {
  using Here = Combine<true, Warp, kCoded>;
  using Sums = std::conditional_t<kCoded, OfCoded<RailSums<Here>, true>, RailSums<Here>>;

 public:
  MOE_LANES CombineRails(const Warp& warp, const StepParams& p, WarpIndex w) : CombineRails(Here(warp, p, w)) {}
  // Resumes an operation (core/seldom.h).
  MOE_LANES CombineRails(const Warp& warp, const StepParams& p, WarpIndex w, const Operation& which)
      : CombineRails(Here(warp, p, w, which)) {}

  MOE_LANES void run() const {
    if (s.stopped()) return;
    std::uint32_t fault = knownFault(s);
    if (s.sends && !(here_.begin(false) && railsAreFree(s, words()))) return;
    const auto handOver = [&](int wave) { return !s.sends || here_.handOver(wave, s.w, fault != 0); };
    const auto forward = [&](int wave) { return !s.sends || forwardSums(wave, fault); };
    const auto take = [&](int wave) { return !s.receives || sumWave(wave, fault); };
    if (!inWavesOverRails(s.handle, handOver, forward, take) || !s.receives) return;
    if (fault != 0) {
      sumNothing(s.warp, s.p, s.w);
      const auto keep = [](const CombineRails& rails) { rails.keepFault(); };
      if (isLast(s.w) && s.allHaveBegun()) seldom<CombineRails>(s, keep, s.w, s.operation());
      here_.endReading();
    } else {
      here_.end();
    }
    freeRails(s, words());
  }

  MOE_LANES void keepFault() const {
    keepRailsFault(s, words(), [&](int from) { return here_.faultOf(from); });
  }

 private:
  MOE_LANES explicit CombineRails(const Here& here) : here_(here), s(here_.s) {}

  MOE_LANES RailWords words(std::uint32_t fault = 0) const {
    const RemoteLayout& at = s.comm.far->at;
    const std::uint64_t terms = fault != 0 ? fault : s.args.terms;
    return {kCombineRails, at.htSumWaves, at.htSumsFree, terms, Phase::combineRails, Phase::combineRailsFree};
  }

  // All ranks of this domain learn of its faults from its records, and report them to their rail peers with the first
  // wave.
  MOE_LANES bool forwardSums(int wave, std::uint32_t& fault) const {
    if (!waitForWave(s, s.area.ready, wave, Phase::combineRows)) return false;
    if (wave == 0 && fault == 0) fault = here_.recordsFault();
    const bool silent = fault != 0;
    const RailRows rows{s.handle, wave};
    const PartShare share = shareOf({0, silent ? 0 : rows.count()}, s.args.parts, s.args.rowBytes, s.w);
    s.warp.reduceRows(s.comm, Sums{here_, rows, share});
    const auto putRows = [&](int domain) {
      if (!silent) putSums(rows, domain);
    };
    if (!sendOverRails(s, words(fault), wave, putRows)) return false;
    if (wave == s.handle.waves - 1) here_.endSend(silent);
    return true;
  }

  // The first wave brings the words of other domains. After it all ranks of all domains know whether there are sums.
  MOE_LANES bool sumWave(int wave, std::uint32_t& fault) const {
    if (!railsHaveCome(s, words(), wave) || !waitForWave(s, s.area.ready, wave, Phase::combineRows)) return false;
    if (wave == 0 && fault == 0) fault = railsFault(s, words());
    return fault != 0 || here_.sumRows(wave, s.w);
  }

  // Puts the sums of a wave for the owner in `domain`. The first wave also carries all gradients for that owner.
  MOE_LANES void putSums(const RailRows& rows, int domain) const {
    const CommView& c = s.comm;
    const RemoteLayout& at = c.far->at;
    const int peer = c.railPeer(domain), first = rows.first(domain);
    const auto rowIn = [&](std::uint64_t area, int part) {
      return railRow(c, area, c.rowBytesMax, s.args.wireBytes, part, first);
    };
    putBlock(s, peer,
             {rowIn(at.railSums, c.domain()), rowIn(at.railSumsOut, domain),
              std::int64_t{rows.end(domain) - first} * s.args.wireBytes, connectionOfWave(rows.wave)});
    if (rows.wave != 0 || s.args.grads == 0) return;
    const std::int64_t arrived = s.handle.rails.start[s.handle.waves * s.handle.domains + domain];
    putBlock(s, peer,
             {railGradsRow(c, at.railGrads, c.domain(), 0), railGradsRow(c, at.railGradsOut, domain, 0),
              arrived * c.topkMax * static_cast<std::int64_t>(sizeof(float)), connectionOfWave(rows.wave)});
  }

  Here here_;
  const CombineSession<Warp, kCoded> s;  // a copy of the session of here_, so that the compiler keeps it in registers
};

}  // namespace moe
