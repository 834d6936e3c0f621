// The operations of a policy, each with its rules. A step asks nothing else of the machine that it runs on.
//
// A policy is a class whose objects play one warp: lanes that work together. Core is for every step, Computes for the
// route, Moves for dispatches and combines, Codes for combines in a wire format, Gathers for LL dispatches that route,
// Lands for LL combines, Blocks for the LL steps whose warps are blocks. Each policy states beside its class which of
// these it is.
//
// Words. A *collective* is called by all lanes of the warp, in the same order and with the same arguments; operations
// whose names begin with "lane" are called by any lane. "Meets" means that the lanes wait for each other and then see
// each other's plain stores. Callables have no effects but those named here, and depend only on their indices. So a
// policy may call them on any lane, and may call those that only look something up more than once.
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
struct CopyAndScatter : CopyWithSide {
  MOE_LANES bool mayPlace() const { return true; }
  MOE_LANES int sideWords() const { return 1; }
  MOE_LANES std::int64_t sideStride() const { return 1; }
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
struct CastWhenPlaced : CastOne {
  MOE_LANES bool mayPlace() const { return true; }
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
static_assert(ScattersSides<CopyAndScatter> && !ScattersSides<CopyWithSide>);
static_assert(CopyList<CopyOne> && HasSides<CopyWithSide> && MadeToLand<CopyToLand> && SumList<SumOne>);
static_assert(Weighted<SumWeighted> && AsksFirst<SumWeighted> && MadeToLand<SumToLand> && TakesLanded<SumLanded>);
static_assert(!HasSides<CopyOne> && !MadeToLand<SumOne> && !Weighted<SumOne> && !TakesLanded<SumOne>);
static_assert(WireList<SumCoded> && WireList<SumOfCodedLanded> && !WireList<SumOne>);

}  // namespace moe::contract

namespace moe {

// The operations that every step needs.
template <class Warp>
concept Core = requires(const Warp warp, const CommView& comm, Flag* flag, int n, WarpIndex team, Meeting meeting,
                        std::uint32_t& looked) {
  // The number of lanes of the warp. To a step it is only a unit of work.
  { Warp::kLanes } -> std::convertible_to<int>;
  // Whether `put` may be called. A kernel without it has no code for other domains.
  { Warp::kPuts } -> std::convertible_to<bool>;

  // Calls body(i) once for each i below n, on one lane each, in no order. Collective; meets before and after.
  warp.forEach(n, contract::Body{});

  // Reads or stores one word, Quad or record of window memory, or of memory that another warp has published. A store is
  // visible after the next publishAll or announce, not before.
  { warp.laneLoad(flag) } -> std::same_as<Flag>;
  warp.laneStore(flag, Flag{});

  // Stores `word` to flagOf(0..n-1), in no order. Collective; meets before. A release for all n words: all stores of
  // all lanes of the warp, and everything that the warp has seen by waitAll, come before.
  warp.publishAll(n, contract::FlagOf{}, Flag{});

  // Posts putOf(0..n-1) to ranks of other domains. Puts to the same rank keep this order. Collective; meets before. A
  // release, like publishAll. At the receiver a word comes after all puts to its rank that were posted before it over
  // the same connection. If there is no room, `put` waits at most for the timeout, and reports it.
  warp.put(comm, n, contract::PutOf{});

  // Every warp of the team calls it once. When the last warp has called, each of the n flags has grown by one epoch;
  // before that no flag has. No warp waits for another. Collective; meets before. A release like publishAll, for
  // everything that the whole team has written. In a step each meeting serves one announcement.
  warp.announce(n, contract::FlagOf{}, meeting, team);

  // The same for one private word of the rank. It is a release within the rank only, of plain stores and of laneStore
  // to private memory.
  warp.mark(flag, meeting, team);

  // True once n consecutive flags have reached `epoch`: an acquire, for all lanes. False after the timeout, or when an
  // awaited rank has left (both reported, naming the rank), or when this rank was stopped. Collective; meets after.
  // Within a step the same flags are waited for with the same phase for one epoch only. If comm.waits is set,
  // waits[rank] becomes at least the time for which that rank's flag was missing, as exact as the policy's polls. Waits
  // for warps of this rank do not count.
  { warp.waitAll(comm, flag, n, std::uint64_t{}, std::declval<Awaited>()) } -> std::same_as<bool>;

  // True if this rank has failed or was told to stop. Collective, with one result. `looked`: words that the caller has
  // looked up before. Their loads and those of this operation are on their way at the same time.
  { warp.stopped(comm) } -> std::same_as<bool>;
  { warp.stopped(comm, looked, looked) } -> std::same_as<bool>;

  // The same for one lane alone, as it was looked up: not 0 if so.
  { warp.laneStopped(comm) } -> std::same_as<std::uint32_t>;
  // Returns when the words that were looked up before have arrived, so that the compiler cannot move their loads behind
  // this point.
  warp.hold(looked);

  // Keeps the first failure of the rank and drops later ones; a release of the record to the host.
  warp.laneFail(comm, std::declval<const Failure&>());
};

// The further operations that the route needs.
template <class Warp>
concept Computes = Core<Warp> && requires(const Warp warp, const CommView& comm, std::uint32_t* word, int n) {
  // Whether in the route one lane does all work on a token, instead of one lane per entry.
  { Warp::kWholeTokens } -> std::convertible_to<bool>;

  // Calls take(i, valueOf(i)) once for each i below n, on one lane each, in no order. Up to four values of a lane are
  // looked up before it takes the first, so no valueOf reads what a `take` writes. Collective; meets before and after.
  warp.template collect<4>(n, contract::IntOf{}, contract::Emit{});

  // Fast memory of this warp alone, for the length of the step: kScratchBytes, aligned to 16 bytes, with undefined
  // content. kScratchBytes may be 0.
  { Warp::kScratchBytes } -> std::convertible_to<int>;
  { warp.scratchMemory() } -> std::same_as<std::uint8_t*>;

  // Calls emit(i, sum of valueOf(0..i-1)) once for each i below n, on the lane that has looked valueOf(i) up. Returns
  // the whole sum. Collective, with one result; meets after.
  { warp.scanInOrder(n, contract::IntOf{}, contract::Emit{}) } -> std::same_as<int>;

  // Sets bits of a private word. Other lanes of this warp may set bits of it at the same time, but other warps may not.
  // laneAdd adds in the same way.
  warp.laneOr(word, std::uint32_t{});
  warp.laneAdd(word, std::uint32_t{});

  // Does the same as waitAll, and calls take(i, word) once for each flag, on one lane each, with the value it found.
  {
    warp.waitAll(comm, std::declval<Flag*>(), n, std::uint64_t{}, std::declval<Awaited>(), contract::TakeWord{})
    } -> std::same_as<bool>;
};

// The further operations that dispatches and combines need. Bytes and addresses are multiples of 16; sources and places
// do not overlap. Stores become visible like those of laneStore. rows/row_jobs.h explains lists.
template <class Warp>
concept Moves = Core<Warp> && requires(const Warp warp, const CommView& comm, ReadyScan& scan) {
  // Whether rows of LL combines land wherever they can. Then no other LL combine waits for rows of experts.
  { Warp::kLandsRows } -> std::convertible_to<bool>;
  // Whether pickReady may be called. A kernel without it has no code for it.
  { Warp::kPicks } -> std::convertible_to<bool>;

  // Returns when this rank's step before this one has ended, and its stores are visible. Only a step that runs beside
  // that one calls it.
  warp.awaitPredecessor();

  // Copies each job's bytes from its source to each of its places that is not NULL; at most 32 places. All lanes call
  // mayPlace() once, before the first place is looked up, even if there are no jobs. Rows may have been read before. If
  // it returns false, nothing is written, and the result is false. Collective; meets before.
  { warp.streamRows(contract::CopyOne{}) } -> std::same_as<bool>;
  { warp.streamRows(contract::CopyWhenPlaced{}) } -> std::same_as<bool>;
  warp.streamRows(contract::CopyWithSide{});

  // Quantises each job's elements, which are whole tiles of 512 except at the end of a row. Stores codes and scales to
  // each of the job's places that is not NULL; at most 32 places. Collective; meets before.
  warp.castRows(contract::CastOne{});

  // Stores each job's sum. It is an fp32 sum of at most 64 rows in their order, each multiplied by its weight if there
  // are weights, and is rounded once to the row type. All lanes call mayRead() once, before the first row is read, even
  // if there are no jobs. Jobs, rows and weights may have been looked up before. If it returns false, nothing is read
  // or written, and the result is false. Collective; meets before.
  { warp.reduceRows(comm, contract::SumOne{}) } -> std::same_as<bool>;
  { warp.reduceRows(comm, contract::SumWeighted{}) } -> std::same_as<bool>;

  // Picks items of a list whose words have reached the target. All calls with the same scan together pick each item
  // once, in no order. A call looks at 64 or more of the items that were not picked, or at all of them. If none of them
  // is ready, it waits for one. All calls with a scan together wait somewhat less than the timeout (longestWait),
  // which is then reported. When all words have reached the target, it may say that the rest is left, if the list
  // allows that. An acquire, for all lanes, of everything that was stored on this device before the words were counted
  // up. Collective, with one result; meets before and after.
  { warp.pickReady(comm, contract::WaitForOne{}, scan) } -> std::same_as<ReadyPick>;
};

// The further operations that combines with rows in a wire format need: sums that are coded, and sums of coded rows.
// The rules are those of reduceRows; rows/wire_sums.h explains such lists.
template <class Warp>
concept Codes = Moves<Warp> && requires(const Warp warp, const CommView& comm) {
  { warp.reduceRows(comm, contract::SumCoded{}) } -> std::same_as<bool>;
  { warp.reduceRows(comm, contract::SumOfCoded{}) } -> std::same_as<bool>;
};

// The further operations that a dispatch that routes needs, in which all lanes that share scratch memory work together.
template <class Warp>
concept Gathers = Moves<Warp> && Computes<typename Warp::Wide> &&
    requires(const Warp warp, int n, Meeting meeting, WarpIndex team) {
  // The policy for which all lanes that share scratch memory are one warp. All warps of a block get it and make the
  // same calls. Where there are no blocks, it is the policy of a single warp. Between two such calls each warp may do
  // different work.
  { warp.wide() } -> std::convertible_to<typename Warp::Wide>;

  // The number of warps of a block.
  { Warp::warpsOfBlock() } -> std::same_as<int>;

  // Like announce, for flags that count rows (flag.h). Each block also adds moreOf(i) to flag i. All warps of a block
  // must get the same moreOf(i).
  warp.announceRows(n, contract::FlagOf{}, contract::RowsOf{}, meeting, team);
};

// The operations of steps that move rows and whose warps are blocks. Statements above about the warps of a block hold
// for the block here.
template <class Warp>
concept Blocks = Moves<Warp> && Computes<Warp> &&
    requires(const Warp warp, const CommView& comm, int n, Meeting meeting, WarpIndex team, std::uint32_t& looked) {
  warp.announceRows(n, contract::FlagOf{}, contract::RowsOf{}, meeting, team);

  // Like forEach, but lanes do not meet. Lanes that other operations use first are used last here.
  warp.each(n, contract::Body{});

  // Like collect<1>, but also calls meanwhile() once on every lane, when the lane's first look-ups are on their way.
  warp.collectBeside(n, contract::IntOf{}, contract::Emit{}, StartNothing{});
  // The same, and whether this rank may go on, which stopped() would say. `looked`: as there.
  {
    warp.collectUnlessStopped(comm, n, contract::IntOf{}, contract::Emit{}, StartNothing{}, looked)
    } -> std::same_as<bool>;

  // publishAll in parts. It is a release of everything before beginPublish. The word may be looked up in between. Lanes
  // do not meet in endPublish. laneTarget finds a lane's flag, which takes time; it may come long before.
  { warp.laneTarget(n, contract::FlagOf{}) } -> std::same_as<Flag*>;
  warp.beginPublish();
  warp.endPublish(n, contract::FlagOf{}, Flag{}, std::declval<Flag*>());

  // Like the same operations of Moves. Side payloads that are words may have a stride. Casts may look their places up,
  // and rows may have been read before.
  { warp.streamRows(contract::CopyAndScatter{}) } -> std::same_as<bool>;
  { warp.castRows(contract::CastWhenPlaced{}) } -> std::same_as<bool>;

  // Waits until the results of all earlier steps are visible. Before it, a step may only read its arguments and write
  // scratch memory. A step calls it once. Returns the time, for noteStart.
  { warp.follow() } -> std::same_as<std::uint64_t>;
  // Begins the step's record with that time. The step must call it before the epoch ends. Only the first call counts.
  warp.noteStart(std::uint64_t{});
};

// The further operations that LL combines need whose rows land at their owners: copies and sums that are stored as
// landing words, and sums of rows that land here. Such a sum waits for its landed rows, takes them and leaves their
// places empty. The result is false after the timeout, when late(i, term) is reported, or when this rank was stopped.
// Some sums are not made then.
template <class Warp>
concept Lands = Moves<Warp> && requires(const Warp warp, const CommView& comm) {
  warp.streamRows(contract::CopyToLand{});
  { warp.reduceRows(comm, contract::SumToLand{}) } -> std::same_as<bool>;
  { warp.reduceRows(comm, contract::SumLanded{}) } -> std::same_as<bool>;
  { warp.reduceRows(comm, contract::SumCodedToLand{}) } -> std::same_as<bool>;
  { warp.reduceRows(comm, contract::SumOfCodedLanded{}) } -> std::same_as<bool>;
};

}  // namespace moe
