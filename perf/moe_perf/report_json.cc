// The reports for programs: JSON, and CSV with the same names and numbers.
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "perf/moe_perf/report.h"

namespace moe::perf {
namespace {

nlohmann::ordered_json toJson(const std::vector<double>& samples) {
  const Summary summary = summarize(samples);
  return {{"min", summary.min}, {"p10", summary.p10}, {"median", summary.median},
          {"p90", summary.p90}, {"p99", summary.p99}, {"max", summary.max}};
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
  json["step_of_ceiling"] = of.step;
  json["dispatch_ceiling"] = toJson(ceilings.push);
  json["combine_ceiling"] = toJson(combineCeiling(ceilings));
  json["push_back_ceiling"] = toJson(ceilings.pushBack);
  json["pull_ceiling"] = toJson(ceilings.pull);
  json["pull_with_sums"] = toJson(ceilings.pullSums);
  const CeilingShares ofChoice = ceilingShares(result, ceilings.atChoice);
  json["dispatch_of_ceiling_at_sms"] = ofChoice.dispatch;
  json["combine_of_ceiling_at_sms"] = ofChoice.combine;
  json["pair_of_ceiling_at_sms"] = ofChoice.pair;
  json["step_of_ceiling_at_sms"] = ofChoice.step;
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
          {"wire", options.wireName()},
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
          {"groups", options.routing == Routing::groupLimited ? options.groups : 0},
          {"groups-per-token", options.routing == Routing::groupLimited ? options.groupsPerToken : 0},
          {"seed", options.seed},
          {"weights", options.weightsName()},
          {"window", options.window},
          {"send-only", options.sendOnly},
          {"ceiling", options.ceiling},
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
                                 {"faults_one_in", options.faultsOneIn},
                                 {"graph", options.graph},
                                 {"seed", options.seed},
                                 {"nranks", result.machine.nranks},
                                 {"domains", result.machine.domains},
                                 {"transport", result.machine.transport},
                                 {"device", result.machine.device},
                                 {"iterations", result.iterations},
                                 {"ll_iterations", result.llIterations},
                                 {"faults", result.faults},
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
  json["dispatch_us"] = toJson(result.dispatch);
  json["combine_us"] = toJson(result.combine);
  json["pair_us"] = toJson(result.pair);
  json["step_us"] = toJson(result.step);
  if (options.perRank) {
    json["rank_medians_us"] = {{"dispatch", result.ranks.dispatch},
                               {"combine", result.ranks.combine},
                               {"pair", result.ranks.pair},
                               {"step", result.ranks.step}};
  }
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

void add(const Provenance& provenance, const std::string& gpu, nlohmann::ordered_json& json) {
  json["version"] = provenance.version;
  json["commit"] = provenance.commit;
  json["host"] = provenance.host;
  json["date"] = provenance.date;
  json["cpu"] = provenance.cpu;
  json["gpu"] = gpu;
  json["driver"] = provenance.driver;
}

std::string gpuOf(const Machine& machine) {
  return machine.backend == "cuda" ? machine.device : "";
}

// A host name may contain any bytes. Bytes that are not UTF-8 are replaced.
std::string text(const nlohmann::ordered_json& json) {
  return json.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
}

// Quotes a cell that has a comma, a quote or a line end.
std::string csvCell(const std::string& text) {
  if (text.find_first_of(",\"\n") == std::string::npos) return text;
  std::string quoted = "\"";
  for (const char c : text) quoted += c == '"' ? std::string("\"\"") : std::string(1, c);
  return quoted + "\"";
}

struct Columns {
  std::vector<std::string> names, values;
};

// Flattens nested objects into names such as "pair_us.min".
void addColumns(const nlohmann::ordered_json& object, const std::string& prefix, Columns& columns) {
  for (const auto& [name, value] : object.items()) {
    if (value.is_object()) {
      addColumns(value, prefix + name + ".", columns);
    } else {
      columns.names.push_back(prefix + name);
      columns.values.push_back(csvCell(value.is_string() ? value.get<std::string>() : value.dump()));
    }
  }
}

}  // namespace

Cases casesOf(const Provenance& provenance, const Options& options, const std::vector<CaseResult>& results) {
  Cases cases = Cases::array();
  for (const CaseResult& result : results) {
    cases.push_back(toJson(options, result));
    add(provenance, gpuOf(result.machine), cases.back());
  }
  return cases;
}

std::string jsonText(const Provenance& provenance, const TransportResult& result) {
  nlohmann::ordered_json pairs = nlohmann::ordered_json::array();
  for (const PairResult& pair : result.pairs) pairs.push_back(toJson(pair));
  nlohmann::ordered_json json = {{"transport_test", true},
                                 {"nranks", result.nranks},
                                 {"domains", result.nranks / result.domainSize},
                                 {"transport", result.transport}};
  add(provenance, "", json);
  json["pairs"] = pairs;
  return text(nlohmann::ordered_json::array({json}));
}

std::string jsonText(const Provenance& provenance, const Options& options, const std::vector<CaseResult>& results) {
  return text(casesOf(provenance, options, results));
}

std::string jsonText(const Provenance& provenance, const Options& options, const SoakResult& result) {
  nlohmann::ordered_json json = toJson(options, result);
  add(provenance, gpuOf(result.machine), json);
  return text(nlohmann::ordered_json::array({json}));
}

std::string csvText(const Provenance& provenance, const Options& options, const std::vector<CaseResult>& results) {
  std::string lines;
  for (const nlohmann::ordered_json& json : casesOf(provenance, options, results)) {
    Columns columns;
    addColumns(json, "", columns);
    if (lines.empty()) lines = fmt::format("{}\n", fmt::join(columns.names, ","));
    lines += fmt::format("{}\n", fmt::join(columns.values, ","));
  }
  return lines;
}

}  // namespace moe::perf
