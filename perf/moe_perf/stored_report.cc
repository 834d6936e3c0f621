#include "perf/moe_perf/stored_report.h"

#include <fmt/format.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <stdexcept>

namespace moe::perf {
namespace {

bool isAboveZero(const Cases& value) {
  return value.is_number() && value.get<double>() > 0;
}

// The first field that a case lacks or has in a wrong form; empty if there is none.
std::string wrongField(const Cases& one) {
  if (!one.is_object()) return "it is not an object";
  const auto tokens = one.find("tokens");
  if (tokens == one.end() || !tokens->is_number_integer()) return "tokens is not a whole number";
  for (const char* times : {"dispatch_us", "combine_us", "pair_us", "step_us"}) {
    for (const char* which : {"min", "median", "p99"}) {
      const auto found = one.find(times);
      if (found == one.end() || !found->is_object() || !found->contains(which) || !isAboveZero((*found)[which])) {
        return fmt::format("{}.{} is not a time above 0", times, which);
      }
    }
  }
  for (const char* rate : {"remote_gbps", "combine_remote_gbps", "remote_bytes", "combine_remote_bytes"}) {
    if (!one.contains(rate) || !one[rate].is_number()) return fmt::format("{} is not a number", rate);
  }
  return "";
}

}  // namespace

Cases readCases(const std::string& option, const std::string& path) {
  std::ifstream file(path);
  if (!file) throw std::runtime_error(fmt::format("{}: cannot read {}: {}", option, path, std::strerror(errno)));
  Cases cases = Cases::parse(file, nullptr, false);
  if (!cases.is_array() || cases.empty()) {
    throw std::runtime_error(fmt::format("{}: {} is not a report of moe_perf --json", option, path));
  }
  for (std::size_t i = 0; i < cases.size(); ++i) {
    const std::string wrong = wrongField(cases[i]);
    if (wrong.empty()) continue;
    throw std::runtime_error(
        fmt::format("{}: {} is not a report of cases of moe_perf --json: case {}: {}", option, path, i + 1, wrong));
  }
  return cases;
}

const std::vector<std::string>& fieldsOfWork() {
  static const std::vector<std::string> fields = {
      "backend", "mode",   "layout",           "format",  "cast",  "scales",     "hidden",    "topk",  "experts",
      "routing", "groups", "groups-per-token", "weights", "graph", "interleave", "send-only", "chain", "nranks",
      "domains", "wire"};
  return fields;
}

const std::vector<std::string>& fieldsOfSettings() {
  static const std::vector<std::string> fields = {
      "sms",          "iters",   "timed",     "warmup",           "window",    "seed",
      "verify-every", "ceiling", "transport", "ranks-as-threads", "timeout-ms"};
  return fields;
}

const std::vector<std::string>& fieldsOfMachine() {
  static const std::vector<std::string> fields = {"host", "device", "cpu", "gpu", "driver", "version"};
  return fields;
}

std::string fieldText(const Cases& oneCase, const std::string& field) {
  const auto found = oneCase.find(field);
  if (found == oneCase.end()) return "unknown";
  const std::string text = found->is_string() ? found->get<std::string>() : found->dump();
  return text.empty() ? "none" : text;
}

}  // namespace moe::perf
