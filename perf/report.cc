#include "report.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <fstream>
#include <stdexcept>

#include <nlohmann/json.hpp>

namespace moe::perf {
namespace {

// Bytes per microsecond are megabytes per second; 0 where nothing was measured or moved.
double gigabytesPerSecond(double bytes, double microseconds) {
  return microseconds > 0 ? bytes / microseconds * 1e-3 : 0;
}

double dispatchToMemcpy(const CaseResult& result) {
  const double dispatch = summarize(result.dispatch).median;
  return dispatch > 0 ? summarize(result.memcpyTimes).median / dispatch : 0;
}

nlohmann::ordered_json toJson(const std::vector<double>& samples) {
  const Summary summary = summarize(samples);
  return {{"min", summary.min}, {"median", summary.median}, {"p99", summary.p99}};
}

nlohmann::ordered_json toJson(const CeilingTime& ceiling) {
  return {{"variant", ceiling.variant}, {"us", toJson(ceiling.times)}};
}

void addCeilings(const CaseResult& result, nlohmann::ordered_json& json) {
  const Ceilings& ceilings = *result.ceilings;
  const CeilingShares of = ceilingShares(result);
  json["dispatch_of_ceiling"] = of.dispatch;
  json["combine_of_ceiling"] = of.combine;
  json["pair_of_ceiling"] = of.pair;
  json["dispatch_ceiling"] = toJson(ceilings.push);
  json["combine_ceiling"] = toJson(combineCeiling(ceilings));
  json["push_back_ceiling"] = toJson(ceilings.pushBack);
  json["pull_ceiling"] = toJson(ceilings.pull);
  json["pull_with_sums"] = toJson(ceilings.pullSums);
  const CeilingShares ofChoice = ceilingShares(result, ceilings.atChoice);
  json["dispatch_of_ceiling_at_sms"] = ofChoice.dispatch;
  json["combine_of_ceiling_at_sms"] = ofChoice.combine;
  json["pair_of_ceiling_at_sms"] = ofChoice.pair;
  json["dispatch_ceiling_at_sms"] = toJson(ceilings.atChoice.push);
  json["combine_ceiling_at_sms"] = toJson(combineCeiling(ceilings.atChoice));
  json["flag_round_trip"] = toJson(ceilings.roundTrip);
  json["barrier_kernel"] = toJson(ceilings.barrier);
}

nlohmann::ordered_json parameters(const Options& options, const CaseResult& result) {
  return {{"backend", result.machine.backend},
          {"mode", options.modeName()},
          {"layout", options.layoutName()},
          {"format", options.formatName()},
          {"cast", options.castName()},
          {"scales", options.scalesName()},
          {"tokens", result.tokens},
          {"hidden", options.hidden},
          {"topk", options.topk},
          {"experts", options.experts},
          {"sms", options.sms},
          {"iters", options.iters},
          {"timed", options.timedIterations()},
          {"chain", options.chain},
          {"warmup", options.warmup},
          {"graph", options.graph},
          {"interleave", options.interleave},
          {"routing", options.routingName()},
          {"groups", options.routing == Routing::kGroupLimited ? options.groups : 0},
          {"groups-per-token", options.routing == Routing::kGroupLimited ? options.groupsPerToken : 0},
          {"seed", options.seed},
          {"weights", options.weightsName()},
          {"window", options.window},
          {"send-only", options.sendOnly},
          {"ceiling", options.ceiling},
          {"twin", options.twin},
          {"ranks-as-threads", options.threads},
          {"timeout-ms", options.timeoutMs},
          {"verify-every", options.verifyEvery},
          {"nranks", result.machine.nranks},
          {"domains", result.machine.domains},
          {"transport", result.machine.transport},
          {"device", result.machine.device}};
}

void addVerdict(const Verdict& verdict, nlohmann::ordered_json& json) {
  json["wrong_payloads"] = verdict.wrongPayloads;
  json["wrong_metadata"] = verdict.wrongMetadata;
  json["wrong_combines"] = verdict.wrongCombines;
  json["max_rel_error"] = verdict.maxRelError;
}

nlohmann::ordered_json toJson(const Options& options, const SoakResult& result) {
  nlohmann::ordered_json json = {{"backend", result.machine.backend},
                                 {"mode", options.modeName()},
                                 {"tokens", options.tokensMax()},
                                 {"hidden", options.hidden},
                                 {"topk", options.topk},
                                 {"experts", options.experts},
                                 {"sms", options.sms},
                                 {"soak", options.soak},
                                 {"graph", options.graph},
                                 {"seed", options.seed},
                                 {"nranks", result.machine.nranks},
                                 {"domains", result.machine.domains},
                                 {"transport", result.machine.transport},
                                 {"device", result.machine.device},
                                 {"iterations", result.iterations},
                                 {"ll_iterations", result.llIterations},
                                 {"shapes", result.shapes}};
  addVerdict(result.verdict, json);
  json["wrong_shapes"] = result.wrongShapes;
  json["seconds"] = result.seconds;
  return json;
}

nlohmann::ordered_json toJson(const Options& options, const CaseResult& result) {
  nlohmann::ordered_json json = parameters(options, result);
  const double dispatch = summarize(result.dispatch).median;
  addVerdict(result.verdict, json);
  json["dispatch_sms"] = result.multiprocessors.dispatch;
  json["combine_sms"] = result.multiprocessors.combine;
  json["route_us"] = toJson(result.route);
  json["dispatch_us"] = toJson(result.dispatch);
  json["combine_us"] = toJson(result.combine);
  json["pair_us"] = toJson(result.pair);
  json["remote_bytes"] = result.remoteBytes;
  json["remote_gbps"] = gigabytesPerSecond(result.remoteBytes, dispatch);
  json["logical_bytes"] = result.logicalBytes;
  json["logical_gbps"] = gigabytesPerSecond(result.logicalBytes, dispatch);
  json["combine_remote_bytes"] = result.combineRemoteBytes;
  json["combine_remote_gbps"] = gigabytesPerSecond(result.combineRemoteBytes, summarize(result.combine).median);
  if (!result.memcpyTimes.empty()) {
    json["memcpy_gbps"] = gigabytesPerSecond(result.logicalBytes, summarize(result.memcpyTimes).median);
    json["dispatch_vs_memcpy"] = dispatchToMemcpy(result);
  }
  if (result.ceilings) addCeilings(result, json);
  if (result.twin) {
    json["library_us"] = toJson(result.twin->library);
    json["twin_us"] = toJson(result.twin->twin);
    json["library_to_twin"] = dispatchToTwin(result);
  }
  return json;
}

nlohmann::ordered_json toJson(const PairResult& pair) {
  nlohmann::ordered_json speeds = nlohmann::ordered_json::array();
  for (const PutSpeed& speed : pair.speeds) {
    speeds.push_back(
        {{"bytes", speed.bytes}, {"puts_per_second", speed.putsPerSecond}, {"gbps", speed.gigabytesPerSecond()}});
  }
  return {{"from", pair.from},
          {"to", pair.to},
          {"rounds", pair.rounds},
          {"wrong_rounds", pair.wrongRounds},
          {"round_trip_us", toJson(pair.roundTrips)},
          {"puts", speeds}};
}

// "4 ranks", "4 ranks in 2 domains joined by TCP"
std::string ranksOf(const Machine& machine) {
  if (machine.domains == 1) return fmt::format("{} ranks", machine.nranks);
  return fmt::format("{} ranks in {} domains joined by {}", machine.nranks, machine.domains, machine.transport);
}

std::string toText(const Verdict& verdict) {
  if (verdict.correct()) return fmt::format("correct, max rel error {:.2g}", verdict.maxRelError);
  return fmt::format("WRONG: {} payloads, {} metadata, {} combines", verdict.wrongPayloads, verdict.wrongMetadata,
                     verdict.wrongCombines);
}

void writeFile(const std::string& file, const nlohmann::ordered_json& cases) {
  std::ofstream out(file);
  out << cases.dump(2) << "\n";
  out.close();
  if (!out) throw std::runtime_error("cannot write " + file);
}

std::string times(const std::vector<double>& samples) {
  const Summary summary = summarize(samples);
  return fmt::format("{:>8.1f} {:>8.1f} {:>8.1f}", summary.min, summary.median, summary.p99);
}

std::string sizeText(std::uint32_t bytes) {
  constexpr std::uint32_t kKilo = 1U << 10U, kMega = 1U << 20U;
  if (bytes < kKilo) return fmt::format("{} B", bytes);
  return bytes < kMega ? fmt::format("{} KiB", bytes / kKilo) : fmt::format("{} MiB", bytes / kMega);
}

// Columns of the table, empty without --ceiling.
std::string shares(const CaseResult& result) {
  if (!result.ceilings) return "";
  const CeilingShares of = ceilingShares(result);
  return fmt::format("{:>8.1f}% {:>8.1f}% {:>8.1f}% ", 100 * of.dispatch, 100 * of.combine, 100 * of.pair);
}

std::string shareTitles(const CaseResult& first) {
  if (!first.ceilings) return "";
  return fmt::format("{:>9} {:>9} {:>9} ", "dsp/ceil", "cmb/ceil", "pair/ceil");
}

// A launch on its own has its start in its time, operations in a row overlap that with the end of the one before.
std::string launchesText(const Options& options) {
  if (options.chain == 1) return "every operation timed alone";
  return fmt::format("dispatch, combine and pair in chains of {} (their mean)", options.chain);
}

void printCeiling(const char* what, const CeilingTime& ceiling) {
  const Summary summary = summarize(ceiling.times);
  fmt::print("{:>7} {:<21} {:>8.2f} {:>8.2f} {:>8.2f}  {}\n", "", what, summary.min, summary.median, summary.p99,
             ceiling.variant);
}

// Of the library's own choice.
void printChoice(const CaseResult& result) {
  const Multiprocessors& sms = result.multiprocessors;
  fmt::print("{:>7} the library chose {} SMs for dispatch and {} for combine\n", "", sms.dispatch, sms.combine);
  if (!result.ceilings) return;
  const RowCeilings& at = result.ceilings->atChoice;
  const CeilingShares of = ceilingShares(result, at);
  printCeiling("dispatch, that many", at.push);
  printCeiling("combine, that many", combineCeiling(at));
  fmt::print("{:>7} of these ceilings: dispatch {:.1f}%, combine {:.1f}%, pair {:.1f}%\n", "", 100 * of.dispatch,
             100 * of.combine, 100 * of.pair);
}

void printCeilings(const CaseResult& result) {
  const Ceilings& ceilings = *result.ceilings;
  fmt::print("{:>7} bare kernels, launched in a row in a graph, time of one:\n", "");
  printCeiling("ceiling of dispatch", ceilings.push);
  printCeiling("ceiling of combine", combineCeiling(ceilings));
  printCeiling("rows pushed back", ceilings.pushBack);
  printCeiling("rows pulled", ceilings.pull);
  printCeiling("rows pulled, summed", ceilings.pullSums);
  printCeiling("flag round trip", ceilings.roundTrip);
  printCeiling("empty operation", ceilings.barrier);
}

void printTwin(const CaseResult& result) {
  printCeiling("dispatch, library", {"the library's kernel, in turns with", result.twin->library});
  printCeiling("dispatch, twin",
               {fmt::format("its twin: library / twin {:.3f}", dispatchToTwin(result)), result.twin->twin});
}

}  // namespace

Summary summarize(std::vector<double> samples) {
  if (samples.empty()) return {};
  std::sort(samples.begin(), samples.end());
  const auto at = [&](double share) {
    return samples[static_cast<std::size_t>(std::ceil(share * static_cast<double>(samples.size()))) - 1];
  };
  return {samples.front(), at(0.5), at(0.99)};
}

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
  return {of(push, result.dispatch), of(back, result.combine), of(push + back, result.pair)};
}

double dispatchToTwin(const CaseResult& result) {
  const double twin = result.twin ? summarize(result.twin->twin).median : 0;
  return twin > 0 ? summarize(result.twin->library).median / twin : 0;
}

void printHeader(const Options& options, const CaseResult& first) {
  fmt::print("{}, {} ({}), mode {}, layout {}, format {}, hidden {}, top-{} of {} experts, routing {}, weights {}\n",
             ranksOf(first.machine), first.machine.backend, first.machine.device, options.modeName(),
             options.layoutName(),
             options.formatName() + (options.cast == Cast::kNone ? "" : " cast to " + options.castText()),
             options.hidden, options.topk, options.experts, options.routingText(), options.weightsName());
  fmt::print("times in us, min / median / p99 over {} iterations of the slowest rank, {}{}{}{}\n",
             options.timedIterations(), launchesText(options), options.graph ? ", graph replays" : "",
             options.sendOnly ? ", send-only and complete" : "", options.interleave ? ", two handles together" : "");
  fmt::print(
      "bytes per rank (mean): remote = (token, other rank) pairs * ({} row + {} side bytes); logical = the same "
      "with the own rank; GB/s = bytes / median dispatch time / 1e9\n",
      options.travellingRowBytes(), options.sideBytes());
  const std::string how = options.chain == 1 ? ", alone" : ", in a row";
  fmt::print("{:>7} {:^26} {:^26} {:^26} {:^26} {:>12} {:>8} {:>8} {:>8} {:>9} {} {}\n", "tokens",
             "route, on top of a pair", "dispatch" + how, "combine" + how, "pair" + how, "remote bytes", "rem GB/s",
             "log GB/s", "cmb GB/s", "vs memcpy", shareTitles(first), "result");
}

void printCase(const CaseResult& result) {
  const double dispatch = summarize(result.dispatch).median;
  const std::string memcpyShare =
      result.memcpyTimes.empty() ? "-" : fmt::format("{:.0f}%", 100 * dispatchToMemcpy(result));
  fmt::print("{:>7} {} {} {} {} {:>12.0f} {:>8.2f} {:>8.2f} {:>8.2f} {:>9} {} {}\n", result.tokens, times(result.route),
             times(result.dispatch), times(result.combine), times(result.pair), result.remoteBytes,
             gigabytesPerSecond(result.remoteBytes, dispatch), gigabytesPerSecond(result.logicalBytes, dispatch),
             gigabytesPerSecond(result.combineRemoteBytes, summarize(result.combine).median), memcpyShare,
             shares(result), toText(result.verdict));
  if (result.ceilings) printCeilings(result);
  if (result.choseMultiprocessors) printChoice(result);
  if (result.twin) printTwin(result);
  std::fflush(stdout);
}

void printSoak(const SoakResult& result) {
  fmt::print("{}, {} ({}), soak: {} iterations ({} LL, {} HT) in {} shapes, {:.1f} s: {}\n", ranksOf(result.machine),
             result.machine.backend, result.machine.device, result.iterations, result.llIterations,
             result.iterations - result.llIterations, result.shapes, result.seconds, toText(result.verdict));
  for (const std::string& shape : result.wrongShapes) fmt::print("  wrong in shape {}\n", shape);
  std::fflush(stdout);
}

void printTransport(const TransportResult& result) {
  fmt::print(
      "{} ranks in {} domains joined by {}, transport test: puts between host memory, one pair after the other\n",
      result.nranks, result.nranks / result.domainSize, result.transport);
  fmt::print(
      "round trip: a word there and one back, us, min / median / p99; Kput/s: of 64 bytes; GB/s by bytes of a put\n");
  fmt::print("{:>12} {:^26} {:>8}", "from -> to", "round trip", "Kput/s");
  for (const PutSpeed& speed : result.pairs.at(0).speeds) fmt::print(" {:>7}", sizeText(speed.bytes));
  fmt::print(" order\n");
  for (const PairResult& pair : result.pairs) {
    fmt::print("{:>12} {} {:>8.1f}", fmt::format("{} -> {}", pair.from, pair.to), times(pair.roundTrips),
               pair.speeds.at(0).putsPerSecond * 1e-3);
    for (const PutSpeed& speed : pair.speeds) fmt::print(" {:>7.3f}", speed.gigabytesPerSecond());
    fmt::print(" {}\n", pair.wrongRounds == 0
                            ? std::string("correct")
                            : fmt::format("WRONG: in {} of {} rounds a word came before its rows, or they were wrong",
                                          pair.wrongRounds, pair.rounds));
  }
  std::fflush(stdout);
}

void writeJson(const std::string& file, const TransportResult& result) {
  nlohmann::ordered_json pairs = nlohmann::ordered_json::array();
  for (const PairResult& pair : result.pairs) pairs.push_back(toJson(pair));
  writeFile(file, nlohmann::ordered_json::array({{{"transport_test", true},
                                                  {"nranks", result.nranks},
                                                  {"domains", result.nranks / result.domainSize},
                                                  {"transport", result.transport},
                                                  {"pairs", pairs}}}));
}

void writeJson(const std::string& file, const Options& options, const std::vector<CaseResult>& results) {
  nlohmann::ordered_json cases = nlohmann::ordered_json::array();
  for (const CaseResult& result : results) cases.push_back(toJson(options, result));
  writeFile(file, cases);
}

void writeJson(const std::string& file, const Options& options, const SoakResult& result) {
  writeFile(file, nlohmann::ordered_json::array({toJson(options, result)}));
}

}  // namespace moe::perf
