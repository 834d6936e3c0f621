// What a step asks of the machine that it runs on, and nothing else: the operations of a policy, each with its law.
//
// A policy is a class whose objects play one warp: lanes that work together. Core is for every step, Computes for the
// route, Moves for dispatches and combines, Codes for combines in a wire format, Gathers for LL dispatches that route,
// Lands for LL combines, Blocks for the steps of rows in slots. Each policy states beside its class what it is.
//
// Words. A *collective* is called by all lanes of the warp, in the same order and with the same arguments; operations
// whose names begin with "lane" are called by any lane. "Meets" means that the lanes wait for each other and then see
// each other's plain stores. Callables have no effects but those named here, and depend on their indices alone: a
// policy may call them on any lane, and those that only look up more than once.
//
// Two rules. Data is visible after publishAll or announce (to this rank's own warps: mark), and readable after waitAll.
// All lanes call every collective.
#pragma once

#include <concepts>

#include "device/rows/cast_row.h"
#include "device/rows/ready_rows.h"
#include "device/rows/row_jobs.h"
#include "device/rows/wire_sums.h"
#include "device/view/views.h"

namespace moe::contract {

// Callables as steps pass them.
struct Body {
  MOE_LANES void operator()(int) const {}
};
struct IntOf {
  MOE_LANES int operator()(int) const { return 0; }
};
struct Emit {
  MOE_LANES void operator()(int, int) const {}
};
struct FlagOf {
  MOE_LANES Flag* operator()(int) const { return nullptr; }
};
struct RowsOf {
  MOE_LANES int operator()(int) const { return 0; }
};
struct TakeWord {
  MOE_LANES void operator()(int, Flag) const {}
};
struct PutOf {
  MOE_LANES Put operator()(int) const { return {}; }
};

// Lists as steps pass them.
struct CopyOne {
  MOE_LANES int count() const { return 1; }
  MOE_LANES int sinksMax() const { return 1; }
  MOE_LANES CopyJob job(int) const { return {}; }
  MOE_LANES Sink sink(int, int) const { return {}; }
};
struct CopyWithSide : CopyOne {
  static constexpr bool kSides = true;
};
struct CopyWhenPlaced : CopyOne {
  MOE_LANES bool mayPlace() const { return true; }
};
struct CopyToLand : CopyOne {
  static constexpr bool kLanding = true;
};
struct CastOne {
  MOE_LANES int count() const { return 1; }
  MOE_LANES int rowType() const { return kBf16; }
  MOE_LANES CastRule rule() const { return {kCastFp8, nullptr, nullptr}; }
  MOE_LANES CastJob job(int) const { return {}; }
  MOE_LANES CastSink sink(int, int) const { return {}; }
};
struct SumOne {
  MOE_LANES int count() const { return 1; }
  MOE_LANES int rowType() const { return kBf16; }
  MOE_LANES int termsMax() const { return 1; }
  MOE_LANES SumJob job(int) const { return {}; }
  MOE_LANES const std::uint8_t* term(int, int) const { return nullptr; }
};
struct SumWeighted : SumOne {
  MOE_LANES float weight(int, int) const { return 1.0f; }
  MOE_LANES bool mayRead() const { return true; }
};
struct SumToLand : SumOne {
  static constexpr bool kLanding = true;
};
struct SumLanded : SumOne {
  MOE_LANES int landed(int) const { return 1; }
  MOE_LANES Failure late(int, int) const { return {}; }
};
struct WaitForOne {
  MOE_LANES int count() const { return 1; }
  MOE_LANES int words(int) const { return 1; }
  MOE_LANES const std::uint32_t* word(int, int) const { return nullptr; }
  MOE_LANES std::uint32_t target() const { return 1; }
  MOE_LANES AllWords all() const { return {nullptr, 1}; }
  MOE_LANES bool mayLeave() const { return false; }
  MOE_LANES Failure late(int, int, std::uint32_t) const { return {}; }
};
struct SumCoded : SumOne {
  static constexpr bool kCodes = true, kReads = false;
  MOE_LANES WireRow wire() const { return {kWireFp8, kWireUnit}; }
  MOE_LANES WirePart part(int) const { return {0, kWireUnit, 0, 1}; }
  MOE_LANES int coded(int) const { return 0; }
};
struct SumOfCoded : SumCoded {
  static constexpr bool kCodes = false, kReads = true;
};
struct SumCodedToLand : SumCoded {
  static constexpr bool kLanding = true;
};
struct SumOfCodedLanded : SumOfCoded {
  MOE_LANES int landed(int) const { return 1; }
  MOE_LANES Failure late(int, int) const { return {}; }
};
static_assert(AsksPlaces<CopyWhenPlaced> && !AsksPlaces<CopyOne>);
static_assert(CopyList<CopyOne> && HasSides<CopyWithSide> && MadeToLand<CopyToLand> && SumList<SumOne>);
static_assert(Weighted<SumWeighted> && AsksFirst<SumWeighted> && MadeToLand<SumToLand> && TakesLanded<SumLanded>);
static_assert(!HasSides<CopyOne> && !MadeToLand<SumOne> && !Weighted<SumOne> && !TakesLanded<SumOne>);
static_assert(WireList<SumCoded> && WireList<SumOfCodedLanded> && !WireList<SumOne>);

}  // namespace moe::contract

namespace moe {

// What every step needs.
template <class Warp>
concept Core = requires(const Warp warp, const CommView& comm, Flag* flag, int n, WarpIndex team, Meeting meeting,
                        std::uint32_t& looked) {
  // Lanes of the warp: to a step a unit of work, nothing more.
  { Warp::kLanes } -> std::convertible_to<int>;
  // Whether `put` may be called: a kernel without it has no code for other domains.
  { Warp::kPuts } -> std::convertible_to<bool>;

  // body(i) once for each i below n, on one lane each, in no order. Collective; meets before and after.
  warp.forEach(n, contract::Body{});

  // Reads or stores one word, Quad or record of window memory, or of memory that another warp has published. A store is
  // visible after the next publishAll or announce, not before.
  { warp.laneLoad(flag) } -> std::same_as<Flag>;
  warp.laneStore(flag, Flag{});

  // Stores `word` to flagOf(0..n-1), in no order. Collective; meets before. A release for all n: all stores of all
  // lanes of the warp come first, and what the warp has seen by waitAll.
  warp.publishAll(n, contract::FlagOf{}, Flag{});

  // Posts putOf(0..n-1) to ranks of other domains, those to one rank in this order. Collective; meets before. A release
  // as publishAll. At the receiver a word comes after all puts to its rank that were posted before it. It waits for
  // room, at most the timeout, which it reports.
  warp.put(comm, n, contract::PutOf{});

  // Every warp of the team calls it once. When the last one has, each of the n flags has grown by one epoch; before
  // that none has. No warp waits for another. Collective; meets before. A release as publishAll, of what the whole team
  // has written. A meeting is used by one announcement of a step.
  warp.announce(n, contract::FlagOf{}, meeting, team);

  // The same for one private word of the rank: a release within the rank, of plain stores and laneStore to private
  // memory.
  warp.mark(flag, meeting, team);

  // True once n consecutive flags have reached `epoch`: an acquire, for all lanes. False after the timeout, or when an
  // awaited rank has left (both reported, naming the rank), or when this rank was stopped. Collective; meets after.
  // Within a step the same flags are waited for with the same phase for one epoch only. With comm.waits, unless it
  // waits for warps of its own rank: waits[rank] becomes at least the time for which that rank's flag was missing, as
  // closely as the policy looks.
  { warp.waitAll(comm, flag, n, std::uint64_t{}, std::declval<Awaited>()) } -> std::same_as<bool>;

  // True if this rank has failed or was told to stop. Collective, with one result. `looked`: what the caller has looked
  // up before it, so that all of it is on its way at once.
  { warp.stopped(comm) } -> std::same_as<bool>;
  { warp.stopped(comm, looked, looked) } -> std::same_as<bool>;

  // The first, as one lane sees it.
  { warp.laneStopped(comm) } -> std::same_as<bool>;
  // What was looked up into these words before is there: so that nothing of it is looked up later, by itself.
  warp.hold(looked);

  // Keeps the first failure of the rank and drops later ones; a release of the record to the host.
  warp.laneFail(comm, std::declval<const Failure&>());
};

// What the route needs besides.
template <class Warp>
concept Computes = Core<Warp> && requires(const Warp warp, const CommView& comm, std::uint32_t* word, int n) {
  // Whether a lane of the route takes tokens whole, not by their entries.
  { Warp::kWholeTokens } -> std::convertible_to<bool>;

  // take(i, valueOf(i)) once for each i below n, on one lane each, in no order. Up to four values of a lane are looked
  // up before it takes the first, so no valueOf reads what a `take` writes. Collective; meets before and after.
  warp.template collect<4>(n, contract::IntOf{}, contract::Emit{});

  // Memory of this warp alone for the length of the step, which its lanes reach quickly: kScratchBytes, 16-byte
  // aligned, content undefined. There may be none.
  { Warp::kScratchBytes } -> std::convertible_to<int>;
  { warp.scratchMemory() } -> std::same_as<std::uint8_t*>;

  // emit(i, sum of valueOf(0..i-1)) once for each i below n, on the lane that has looked valueOf(i) up. Returns the
  // whole sum. Collective, with one result; meets after.
  { warp.scanInOrder(n, contract::IntOf{}, contract::Emit{}) } -> std::same_as<int>;

  // Sets bits of a private word, in which other lanes of this warp may set bits at the same time, other warps not. The
  // same with a sum.
  warp.laneOr(word, std::uint32_t{});
  warp.laneAdd(word, std::uint32_t{});

  // As waitAll, and take(i, word) once for each flag as it was found, on one lane each.
  {
    warp.waitAll(comm, std::declval<Flag*>(), n, std::uint64_t{}, std::declval<Awaited>(), contract::TakeWord{})
    } -> std::same_as<bool>;
};

// What dispatches and combines need besides. Bytes and addresses are multiples of 16; sources and places do not
// overlap. Stores are visible as those of laneStore are. What a list is: rows/row_jobs.h.
template <class Warp>
concept Moves = Core<Warp> && requires(const Warp warp, const CommView& comm, ReadyScan& scan) {
  // Whether every LL combine that can land does, so that others never wait for rows of experts.
  { Warp::kLandsRows } -> std::convertible_to<bool>;
  // Whether pickReady may be called: a kernel without it has no code for it.
  { Warp::kPicks } -> std::convertible_to<bool>;

  // Copies each job's bytes from its source to each of its places that is one; at most 32 places. mayPlace() is asked
  // once, by all lanes, before the first place is looked up, also if there are no jobs; rows may have been read before.
  // If it is false nothing is written, and so is the result. Collective; meets before.
  { warp.streamRows(contract::CopyOne{}) } -> std::same_as<bool>;
  { warp.streamRows(contract::CopyWhenPlaced{}) } -> std::same_as<bool>;
  warp.streamRows(contract::CopyWithSide{});

  // Quantises each job's elements, whole tiles of 512 but for the last one of a row, and stores codes and scales to
  // each of its places that is one; at most 32 places. Collective; meets before.
  warp.castRows(contract::CastOne{});

  // Stores each job's sum: fp32, of its rows in their order, each times its weight if there are weights, rounded once
  // to the row type; at most 64 rows. mayRead() is asked once, by all lanes, before the first row is read, also if
  // there are no jobs; jobs, rows and weights may have been looked up before. If it is false nothing is read or
  // written, and so is the result. Collective; meets before.
  { warp.reduceRows(comm, contract::SumOne{}) } -> std::same_as<bool>;
  { warp.reduceRows(comm, contract::SumWeighted{}) } -> std::same_as<bool>;

  // Picks items of a list whose words have reached the target, each once over all calls with the same scan, in no
  // order; of at least 64 items that were not picked it looks at all. If there is none it waits for one: all calls with
  // a scan together somewhat less than the timeout (kOwnWorkEarlier), which is then reported. When all words have
  // reached it, it may say that the rest is left, if the list allows that. An acquire, for all lanes, of what was
  // stored on this device before the words were counted up. Collective, with one result; meets before and after.
  { warp.pickReady(comm, contract::WaitForOne{}, scan) } -> std::same_as<ReadyPick>;
};

// What combines whose rows travel in a wire format need besides: sums that are coded, and sums of rows that were. The
// laws are those of reduceRows; rows/wire_sums.h says what such a list is.
template <class Warp>
concept Codes = Moves<Warp> && requires(const Warp warp, const CommView& comm) {
  { warp.reduceRows(comm, contract::SumCoded{}) } -> std::same_as<bool>;
  { warp.reduceRows(comm, contract::SumOfCoded{}) } -> std::same_as<bool>;
};

// What a dispatch that routes needs besides: lanes that share scratch memory work together.
template <class Warp>
concept Gathers = Moves<Warp> && Computes<typename Warp::Wide> &&
    requires(const Warp warp, int n, Meeting meeting, WarpIndex team) {
  // The policy to which all lanes that share scratch memory are one warp. All warps of a block ask for it and make the
  // same calls; where there are no blocks, a warp gathers itself. Between two such calls each warp may go its own way.
  { warp.wide() } -> std::convertible_to<typename Warp::Wide>;

  // How many warps a block has.
  { Warp::warpsOfBlock() } -> std::same_as<int>;

  // As announce, of flags that count rows (flag.h): flag i has also changed by moreOf(i) of each block, which only
  // depends on what all warps of a block see alike.
  warp.announceRows(n, contract::FlagOf{}, contract::RowsOf{}, meeting, team);
};

// What steps need whose warps are blocks and that move rows: what is said of a block's warps above holds for the block.
template <class Warp>
concept Blocks = Moves<Warp> && Computes<Warp> && requires(const Warp warp, int n, Meeting meeting, WarpIndex team) {
  warp.announceRows(n, contract::FlagOf{}, contract::RowsOf{}, meeting, team);

  // As forEach, and does not meet. Lanes that other operations use first come last.
  warp.each(n, contract::Body{});

  // collect<1>, and meanwhile() once on every lane, when its first look-ups are on their way.
  warp.collectBeside(n, contract::IntOf{}, contract::Emit{}, StartNothing{});

  // publishAll in two parts: a release of what came before the first part. What the second needs may be looked up in
  // between. The second does not meet.
  warp.beginPublish();
  warp.endPublish(n, contract::FlagOf{}, Flag{});

  // What the steps before this one have done is there behind it. Before it a step may only read what it was passed, and
  // write scratch memory; it calls it once. Returns the time, for noteStart.
  { warp.follow() } -> std::same_as<std::uint64_t>;
  // The step's record begins with that time: before the epoch moves on. The first call counts.
  warp.noteStart(std::uint64_t{});
};

// What LL combines need besides, where rows land at their owners: the same, stored as landing words, and sums of rows
// that land here. Such a sum waits for its landed rows, takes them and leaves their places empty. The result is false
// after the timeout, for which late(i, term) is reported, or when this rank was stopped; then some sums are not made.
template <class Warp>
concept Lands = Moves<Warp> && requires(const Warp warp, const CommView& comm) {
  warp.streamRows(contract::CopyToLand{});
  { warp.reduceRows(comm, contract::SumToLand{}) } -> std::same_as<bool>;
  { warp.reduceRows(comm, contract::SumLanded{}) } -> std::same_as<bool>;
  { warp.reduceRows(comm, contract::SumCodedToLand{}) } -> std::same_as<bool>;
  { warp.reduceRows(comm, contract::SumOfCodedLanded{}) } -> std::same_as<bool>;
};

}  // namespace moe
