#include "tools/moerun_job.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <string_view>

#include "base/error.h"

namespace moe::tools {
namespace {

constexpr std::string_view kOurs = "MOECOMM_";

bool isName(std::string_view text) {
  const auto fits = [](char c) {
    return (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_';
  };
  return !text.empty() && std::all_of(text.begin(), text.end(), fits) && !(text.front() >= '0' && text.front() <= '9');
}

}  // namespace

std::vector<std::string> rankVariables(const Job& job, const Placement& placement) {
  return {fmt::format("MOECOMM_RANK={}", placement.rank),
          fmt::format("MOECOMM_NRANKS={}", job.nranks),
          fmt::format("MOECOMM_LOCAL_RANK={}", placement.localRank),
          fmt::format("MOECOMM_LOCAL_NRANKS={}", placement.localCount),
          fmt::format("MOECOMM_ROOT={}", job.root),
          fmt::format("MOECOMM_SECRET={}", job.secret)};
}

std::vector<std::string> exportedVariables(const Job& job) {
  std::vector<std::string> exported;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string variable = *entry;
    const std::string name = variable.substr(0, variable.find('='));
    const bool asked = std::find(job.exports.begin(), job.exports.end(), name) != job.exports.end();
    if (isName(name) && (name.starts_with(kOurs) || asked)) exported.push_back(variable);
  }
  return exported;
}

std::vector<std::string> namesLeftOut() {
  std::vector<std::string> names;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string_view variable = *entry;
    const std::string_view name = variable.substr(0, variable.find('='));
    if (name.starts_with(kOurs) && !isName(name)) names.emplace_back(name);
  }
  return names;
}

void checkExports(const std::vector<std::string>& names) {
  for (const std::string& name : names) {
    if (isName(name)) continue;
    throw Error(moeInvalidArgument, fmt::format("--export: '{}' is no name of a variable; expected are letters, digits "
                                                "and _, and no digit first",
                                                name));
  }
}

}  // namespace moe::tools
