// The output of moe_top as JSON, for programs.
#include <nlohmann/json.hpp>

#include "tools/moe_top.h"
#include "tools/rates.h"
#include "tools/waits.h"

namespace moe::tools {
namespace {

using OrderedJson = nlohmann::ordered_json;

// The shares of its time that a rank waited for others, by rank. Null where waits are not recorded.
OrderedJson waitsJson(const WaitTable& waits, int rank) {
  if (!waits.known) return nullptr;
  OrderedJson json = OrderedJson::object();
  const double span = waits.span[static_cast<std::size_t>(rank)];
  for (int awaited = 0; awaited < waits.nranks; ++awaited) {
    const double waited = waits.of(rank, awaited);
    if (span > 0 && waited > 0) json[std::to_string(awaited)] = waited / span;
  }
  return json;
}

// The step that has not ended. Null if there is none.
OrderedJson underWayJson(const RankDump& dump) {
  if (dump.steps.empty() || dump.steps.back().end != 0) return nullptr;
  const DumpedStep& step = dump.steps.back();
  OrderedJson json = {{"call", step.call}, {"number", step.number}, {"seconds", secondsOf(dump.taken - step.begin)}};
  json["awaited"] = step.worstRank >= 0 ? OrderedJson(step.worstRank) : OrderedJson(nullptr);
  return json;
}

template <class Number>
OrderedJson orNull(const std::optional<Number>& number) {
  return number ? OrderedJson(*number) : OrderedJson(nullptr);
}

OrderedJson totalsJson(const std::optional<DumpedTotals>& totals) {
  if (!totals) return nullptr;
  const auto seconds = [](std::optional<std::int64_t> ns) -> std::optional<double> {
    if (!ns) return std::nullopt;
    return secondsOf(*ns);
  };
  return {{"seconds", secondsOf(totals->since)},
          {"routes", totals->routes},
          {"dispatches", totals->dispatches},
          {"combines", totals->combines},
          {"call_rows", totals->callRows},
          {"call_bytes", totals->callBytes},
          {"replayed", totals->replayed()},
          {"step_seconds", orNull(seconds(totals->stepNs))},
          {"wait_seconds", orNull(seconds(totals->waitNs))}};
}

OrderedJson rankJson(const RankDump& dump, const WaitTable& waits) {
  const Rates rates = ratesOf(dump);
  return {{"rank", dump.rank},
          {"host", dump.host},
          {"process", dump.process},
          {"backend", dump.backend},
          {"steps_total", dump.stepsRecorded},
          {"totals", totalsJson(dump.totals)},
          {"recent_seconds", rates.seconds},
          {"recent_steps_per_second", rates.stepsPerSecond},
          {"recent_step_seconds", rates.meanStepSeconds},
          {"recent_bytes_per_second", rates.bytesPerSecond},
          {"recent_wait_ratio", waitsJson(waits, dump.rank)},
          {"under_way", underWayJson(dump)},
          {"failed", dump.result != 0},
          {"failure", dump.failure}};
}

}  // namespace

std::string topJson(const std::vector<std::vector<RankDump>>& jobs, const std::vector<std::string>& problems) {
  OrderedJson all = OrderedJson::array();
  for (const std::vector<RankDump>& dumps : jobs) {
    const WaitTable waits = waitsOf(dumps);
    const Verdict slowest = slowestRank(dumps);
    OrderedJson ranks = OrderedJson::array();
    for (const RankDump& dump : dumps) ranks.push_back(rankJson(dump, waits));
    all.push_back({{"job", dumps[0].job},
                   {"nranks", dumps[0].nranks},
                   {"slowest", {{"rank", slowest.rank}, {"sentence", slowest.sentence}}},
                   {"ranks", ranks}});
  }
  const OrderedJson json = {{"jobs", all}, {"problems", problems}};
  return json.dump(2, ' ', false, OrderedJson::error_handler_t::replace) + "\n";
}

}  // namespace moe::tools
