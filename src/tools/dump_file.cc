#include "tools/dump_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <stdexcept>

#include <nlohmann/json.hpp>

namespace moe::tools {
namespace {

using Json = nlohmann::json;

// Finds the columns by name, so that a version with more of them can be read.
class StepReader {
 public:
  StepReader(const Json& columns, std::int64_t toCommon) : toCommon_(toCommon) {
    for (std::size_t i = 0; i < columns.size(); ++i) at_[columns[i].get<std::string>()] = i;
  }

  DumpedStep read(const Json& row) const {
    return {number(row, "number"),       text(row, "call"),
            text(row, "step"),           text(row, "phases"),
            small(row, "handle"),        number(row, "epoch"),
            number(row, "tokens"),       number(row, "row_bytes"),
            time(row, "begin_ns"),       time(row, "first_wait_end_ns"),
            time(row, "end_ns"),         small(row, "worst_rank"),
            number(row, "worst_wait_ns")};
  }

 private:
  const Json& cell(const Json& row, const char* column) const { return row.at(at_.at(column)); }
  std::int64_t number(const Json& row, const char* column) const { return cell(row, column).get<std::int64_t>(); }
  int small(const Json& row, const char* column) const { return cell(row, column).get<int>(); }
  std::string text(const Json& row, const char* column) const { return cell(row, column).get<std::string>(); }
  std::int64_t time(const Json& row, const char* column) const {
    const std::int64_t ns = number(row, column);
    return ns == 0 ? 0 : ns + toCommon_;
  }

  std::int64_t toCommon_;
  std::map<std::string, std::size_t> at_;
};

std::optional<std::int64_t> numberIfThere(const Json& json, const char* key) {
  if (!json.contains(key)) return std::nullopt;
  return json.at(key).get<std::int64_t>();
}

std::optional<DumpedTotals> totalsOf(const Json& json) {
  if (!json.contains("totals")) return std::nullopt;
  const Json& from = json.at("totals");
  const auto number = [&](const char* key) { return from.at(key).get<std::int64_t>(); };
  DumpedTotals totals;
  totals.since = json.at("clock").at("wall_ns").get<std::int64_t>() - number("since_wall_ns");
  totals.routes = number("routes");
  totals.dispatches = number("dispatches");
  totals.combines = number("combines");
  totals.calls = number("calls");
  totals.callRows = number("call_rows");
  totals.callBytes = number("call_bytes");
  totals.stepNs = numberIfThere(from, "step_ns");
  totals.waitNs = numberIfThere(from, "wait_ns");
  return totals;
}

RankDump dumpOf(const Json& json) {
  if (json.at("format") != "moecomm recorder") throw std::runtime_error("it is not a dump of a flight recorder");
  if (json.at("version") != 1) {
    throw std::runtime_error(fmt::format("its version is {}, but only version 1 is known", json.at("version").dump()));
  }
  RankDump dump;
  dump.job = json.at("job").get<std::string>();
  dump.host = json.at("host").get<std::string>();
  dump.backend = json.at("backend").get<std::string>();
  dump.reason = json.at("reason").get<std::string>();
  dump.failure = json.at("failure").get<std::string>();
  dump.rank = json.at("rank").get<int>();
  dump.nranks = json.at("nranks").get<int>();
  dump.process = json.at("process").get<int>();
  dump.result = json.at("result").get<int>();
  if (dump.nranks < 1 || dump.rank < 0 || dump.rank >= dump.nranks) {
    throw std::runtime_error(fmt::format("rank {} of {} ranks", dump.rank, dump.nranks));
  }
  dump.stepsRecorded = json.at("steps_recorded").get<std::int64_t>();
  const Json &clock = json.at("clock"), &toRank0 = json.at("to_rank0");
  dump.taken = clock.at("wall_ns").get<std::int64_t>() + toRank0.at("offset_ns").get<std::int64_t>();
  dump.clockError = clock.at("error_ns").get<std::int64_t>() + toRank0.at("error_ns").get<std::int64_t>();
  dump.totals = totalsOf(json);
  const StepReader reader(json.at("columns"), dump.taken - clock.at("step_ns").get<std::int64_t>());
  for (const Json& row : json.at("steps")) {
    dump.steps.push_back(reader.read(row));
    if (dump.steps.back().worstRank >= dump.nranks)
      throw std::runtime_error("a step waits for a rank that does not exist");
  }
  return dump;
}

}  // namespace

RankDump parseDump(const std::string& text, const std::string& name) {
  try {
    return dumpOf(Json::parse(text));
  } catch (const std::exception& error) {
    throw std::runtime_error(fmt::format("{}: {}", name, error.what()));
  }
}

std::vector<RankDump> ofOneJob(std::vector<RankDump> dumps, const std::string& job) {
  std::set<std::string> jobs;
  std::map<int, RankDump> ranks;
  for (RankDump& dump : dumps) {
    if (!job.empty() && dump.job != job) continue;
    jobs.insert(dump.job);
    const auto known = ranks.find(dump.rank);
    if (known == ranks.end() || known->second.taken < dump.taken) ranks[dump.rank] = std::move(dump);
  }
  if (jobs.empty()) throw std::runtime_error(job.empty() ? "there is no dump" : "there is no dump of job " + job);
  if (jobs.size() > 1) {
    throw std::runtime_error(fmt::format("there are several jobs, choose one with --job: {}", fmt::join(jobs, ", ")));
  }
  std::vector<RankDump> found;
  for (auto& [rank, dump] : ranks) found.push_back(std::move(dump));
  return found;
}

}  // namespace moe::tools
