// The report for people.
#include "perf/moe_perf/report.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

#include "tools/program_text.h"

namespace moe::perf {
namespace {

using Text = std::back_insert_iterator<std::string>;

// "4 ranks", "4 ranks in 2 domains joined by TCP"
std::string ranksOf(const Machine& machine) {
  if (machine.domains == 1) return fmt::format("{} ranks", machine.nranks);
  return fmt::format("{} ranks in {} domains joined by {}", machine.nranks, machine.domains, machine.transport);
}

std::string wrongText(const Verdict& verdict) {
  return fmt::format("WRONG: {} payloads, {} metadata, {} combines", verdict.wrongPayloads, verdict.wrongMetadata,
                     verdict.wrongCombines);
}

std::string toText(const Verdict& verdict) {
  if (verdict.correct()) return fmt::format("correct, max rel error {:.2g}", verdict.maxRelError);
  return wrongText(verdict);
}

// The time of a single launch includes its start. In a row, each operation's start overlaps the end of the one before.
std::string launchesText(const Options& options) {
  if (options.chain == 1) return "every operation timed alone";
  return fmt::format("each the mean of {} in a row", options.chain);
}

// "64", "32 Ki", "8 Mi"
std::string shortSize(std::uint32_t bytes) {
  constexpr std::uint32_t kKilo = 1U << 10U, kMega = 1U << 20U;
  if (bytes < kKilo) return fmt::format("{}", bytes);
  return bytes < kMega ? fmt::format("{} Ki", bytes / kKilo) : fmt::format("{} Mi", bytes / kMega);
}

std::string times(const std::vector<double>& samples) {
  const Summary summary = summarize(samples);
  return fmt::format("{:>8.1f} {:>8.1f} {:>8.1f}", summary.min, summary.median, summary.p99);
}

void addCeiling(const char* what, const CeilingTime& ceiling, Text out) {
  const Summary summary = summarize(ceiling.times);
  fmt::format_to(out, "{:>2}{:<19} {:>7.2f} {:>7.2f} {:>7.2f}  {}\n", "", what, summary.min, summary.median,
                 summary.p99, ceiling.variant);
}

void addShares(const char* of, const CeilingShares& shares, Text out) {
  fmt::format_to(out, "{:>2}of {} ceilings: dispatch {:.1f}%, combine {:.1f}%, pair {:.1f}%, step {:.1f}%\n", "", of,
                 100 * shares.dispatch, 100 * shares.combine, 100 * shares.pair, 100 * shares.step);
}

// Adds the choice that the library made.
void addChoice(const CaseResult& result, Text out) {
  const Multiprocessors& sms = result.multiprocessors;
  fmt::format_to(out, "{:>2}the library chose {} SMs for dispatch and {} for combine\n", "", sms.dispatch, sms.combine);
  if (!result.ceilings) return;
  const RowCeilings& at = result.ceilings->atChoice;
  addCeiling("dispatch, that many", at.push, out);
  addCeiling("combine, that many", combineCeiling(at), out);
  addShares("these", ceilingShares(result, at), out);
}

void addCeilings(const CaseResult& result, Text out) {
  const Ceilings& ceilings = *result.ceilings;
  addShares("the", ceilingShares(result), out);
  fmt::format_to(out, "{:>2}bare kernels, launched in a row in a graph, time of one:\n", "");
  addCeiling("ceiling of dispatch", ceilings.push, out);
  addCeiling("ceiling of combine", combineCeiling(ceilings), out);
  addCeiling("rows pushed back", ceilings.pushBack, out);
  addCeiling("rows pulled", ceilings.pull, out);
  addCeiling("rows pulled, summed", ceilings.pullSums, out);
  addCeiling("flag round trip", ceilings.roundTrip, out);
  addCeiling("empty operation", ceilings.barrier, out);
}

std::string line(const std::string& text) {
  return tools::wrapped(text, kTableColumns) + "\n";
}

// At most seven columns up to 10 s.
std::string timeCell(double microseconds) {
  constexpr double kLong = 99999.95;
  return microseconds < kLong ? fmt::format("{:.1f}", microseconds) : fmt::format("{:.0f}", microseconds);
}

std::string noiseCell(const Summary& summary) {
  constexpr double kMost = 999.5;
  const double noise = summary.noisePercent();
  return noise < kMost ? fmt::format("{:.0f}%", noise) : ">999%";
}

// The two title lines of the table.
std::string titles(const Options& options) {
  if (!options.verbose) {
    return fmt::format("{:>7} {:>32} {:>5} {:>16}\n", "", "median us of", "pair", "GB/s of") +
           fmt::format("{:>7} {:>8} {:>7} {:>7} {:>7} {:>5} {:>8} {:>7} {:>7} {}\n", "tokens", "dispatch", "combine",
                       "pair", "step", "noise", "dispatch", "combine", "error", "result");
  }
  return fmt::format("{:>7} {:^26} {:^26} {:^26} {:^26} {:>5} {:>12} {:>26} {:>9}\n", "", "dispatch us", "combine us",
                     "pair us", "step us", "pair", "remote", "GB/s of", "dispatch") +
         fmt::format(
             "{:>7} {:>8} {:>8} {:>8} {:>8} {:>8} {:>8} {:>8} {:>8} {:>8} {:>8} {:>8} {:>8} {:>5} {:>12} {:>8} {:>8} "
             "{:>8} {:>9} {}\n",
             "tokens", "min", "median", "p99", "min", "median", "p99", "min", "median", "p99", "min", "median", "p99",
             "noise", "bytes", "dispatch", "logical", "combine", "of memcpy", "result");
}

// One line of the table.
std::string row(const Options& options, const CaseResult& result) {
  const double dispatch = summarize(result.dispatch).median, combine = summarize(result.combine).median;
  const double rate = gigabytesPerSecond(result.remoteBytes, dispatch);
  const double combineRate = gigabytesPerSecond(result.combineRemoteBytes, combine);
  const Summary pair = summarize(result.pair);
  if (options.verbose) {
    const std::string memcpyShare =
        result.memcpyTimes.empty() ? "-" : fmt::format("{:.0f}%", 100 * dispatchToMemcpy(result));
    return fmt::format("{:>7} {} {} {} {} {:>5} {:>12.0f} {:>8.2f} {:>8.2f} {:>8.2f} {:>9} {}\n", result.tokens,
                       times(result.dispatch), times(result.combine), times(result.pair), times(result.step),
                       noiseCell(pair), result.remoteBytes, rate, gigabytesPerSecond(result.logicalBytes, dispatch),
                       combineRate, memcpyShare, toText(result.verdict));
  }
  const bool correct = result.verdict.correct();
  const std::string cells =
      fmt::format("{:>7} {:>8} {:>7} {:>7} {:>7} {:>5} {:>8.2f} {:>7.2f} {:>7.1e} {}\n", result.tokens,
                  timeCell(dispatch), timeCell(combine), timeCell(pair.median), timeCell(summarize(result.step).median),
                  noiseCell(pair), rate, combineRate, result.verdict.maxRelError, correct ? "correct" : "WRONG");
  return correct ? cells : cells + fmt::format("{:>7} {}\n", "", wrongText(result.verdict));
}

// What --per-rank adds to a line of the table. Ranks whose times are not known are left out.
void addRanks(const RankMedians& ranks, Text out) {
  const std::size_t count =
      std::min({ranks.dispatch.size(), ranks.combine.size(), ranks.pair.size(), ranks.step.size()});
  for (std::size_t rank = 0; rank < count; ++rank) {
    fmt::format_to(out, "{:>11}: dispatch {:>8} combine {:>7} pair {:>7} step {:>7}\n", fmt::format("rank {}", rank),
                   timeCell(ranks.dispatch[rank]), timeCell(ranks.combine[rank]), timeCell(ranks.pair[rank]),
                   timeCell(ranks.step[rank]));
  }
}

// Where ranks wait for each other's processors. Empty elsewhere, and on GPUs.
std::string sharingText(const Machine& machine) {
  const HostLoad& load = machine.hostLoad;
  if (machine.backend != "host" || !load.shared()) return "";
  return line(fmt::format("NOTE: {} ranks of a host share {} processor{}: times include waits for a processor",
                          load.ranks, load.processors, load.processors == 1 ? "" : "s"));
}

// Enough blanks to put the second column of a pair's line under its title.
constexpr const char* kPairFormat = "{:>12} {:>8} {:>8} {:>7}";

}  // namespace

const CeilingTime& combineCeiling(const RowCeilings& ceilings) {
  const bool pull = summarize(ceilings.pull.times).median < summarize(ceilings.pushBack.times).median;
  return pull ? ceilings.pull : ceilings.pushBack;
}

CeilingShares ceilingShares(const CaseResult& result) {
  return result.ceilings ? ceilingShares(result, *result.ceilings) : CeilingShares{};
}

CeilingShares ceilingShares(const CaseResult& result, const RowCeilings& at) {
  const double push = summarize(at.push.times).median;
  const double back = summarize(combineCeiling(at).times).median;
  const auto of = [](double ceiling, const std::vector<double>& samples) {
    const double median = summarize(samples).median;
    return median > 0 ? ceiling / median : 0;
  };
  const double both = push + back;
  return {of(push, result.dispatch), of(back, result.combine), of(both, result.pair), of(both, result.step)};
}

double gigabytesPerSecond(double bytes, double microseconds) {
  return microseconds > 0 ? bytes / microseconds * 1e-3 : 0;
}

double dispatchToMemcpy(const CaseResult& result) {
  const double dispatch = summarize(result.dispatch).median;
  return dispatch > 0 ? summarize(result.memcpyTimes).median / dispatch : 0;
}

std::string headerText(const Options& options, const CaseResult& first) {
  return line(
             fmt::format("{}, {} ({}), mode {}, layout {}, format {}", ranksOf(first.machine), first.machine.backend,
                         first.machine.device, options.modeName(), options.layoutName(),
                         options.formatName() + (options.cast == Cast::none ? "" : " cast to " + options.castText()))) +
         line(fmt::format("hidden {}, top-{} of {} experts, routing {}, weights {}", options.hidden, options.topk,
                          options.experts, options.routingText(), options.weightsName())) +
         line(fmt::format("times over {} iterations of the slowest rank, {}{}{}{}", options.timedIterations(),
                          launchesText(options), options.graph ? ", graph replays" : "",
                          options.sendOnly ? ", send-only and complete" : "",
                          options.interleave ? ", two handles together" : "")) +
         sharingText(first.machine) +
         line("pair: dispatch and combine on a known route; step: with a new route before them") +
         line("noise: from the 10th to the 90th percentile of the pair, in % of its median") +
         line(fmt::format("GB/s: per rank, {} row + {} side bytes for each (token, other rank), by the median time",
                          options.travellingRowBytes(), options.sideBytes())) +
         titles(options);
}

std::string caseText(const Options& options, const CaseResult& result) {
  std::string text = row(options, result);
  const Text out(text);
  if (options.perRank) addRanks(result.ranks, out);
  if (result.ceilings) addCeilings(result, out);
  if (result.choseMultiprocessors) addChoice(result, out);
  return text;
}

std::string soakText(const SoakResult& result) {
  std::string text =
      line(fmt::format("{}, {} ({})", ranksOf(result.machine), result.machine.backend, result.machine.device)) +
      line(fmt::format("soak: {} iterations ({} LL, {} HT) in {} shapes, {:.1f} s: {}", result.iterations,
                       result.llIterations, result.iterations - result.llIterations, result.shapes, result.seconds,
                       toText(result.verdict)));
  if (result.faults > 0) text += line(fmt::format("{} of them had a fault", result.faults));
  for (const std::string& shape : result.wrongShapes) text += line("wrong in shape " + shape);
  return text;
}

std::string transportText(const TransportResult& result) {
  std::string text = fmt::format(
      "{} ranks in {} domains joined by {}, transport test:\nputs between host memory, one pair after the other\n"
      "round trip: a word there and one back, us; Kput/s: of 64 bytes; GB/s by the bytes of a put\n",
      result.nranks, result.nranks / result.domainSize, result.transport);
  const Text out(text);
  fmt::format_to(out, "{:>12} {:>17} {:>7} {:>6}\n", "", "round trip", "", "GB/s");
  fmt::format_to(out, kPairFormat, "from -> to", "median", "p99", "Kput/s");
  for (const PutSpeed& speed : result.pairs.at(0).speeds) fmt::format_to(out, " {:>6}", shortSize(speed.bytes));
  fmt::format_to(out, "  order\n");
  for (const PairResult& pair : result.pairs) {
    const Summary trip = summarize(pair.roundTrips);
    fmt::format_to(out, kPairFormat, fmt::format("{} -> {}", pair.from, pair.to), fmt::format("{:.1f}", trip.median),
                   fmt::format("{:.1f}", trip.p99), fmt::format("{:.1f}", pair.speeds.at(0).putsPerSecond * 1e-3));
    for (const PutSpeed& speed : pair.speeds) fmt::format_to(out, " {:>6.2f}", speed.gigabytesPerSecond());
    fmt::format_to(out, "  {}\n", pair.wrongRounds == 0 ? "correct" : "WRONG");
    if (pair.wrongRounds == 0) continue;
    fmt::format_to(out, "{:>12} WRONG: in {} of {} rounds a word came before its rows, or they were wrong\n", "",
                   pair.wrongRounds, pair.rounds);
  }
  return text;
}

}  // namespace moe::perf
