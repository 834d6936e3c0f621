#include "tools/moerun_job.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <filesystem>
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

std::string replaced(const std::string& text, char what, std::string_view with) {
  std::string result;
  for (const char c : text) {
    if (c == what) {
      result += with;
    } else {
      result += c;
    }
  }
  return result;
}

// NAME='value' on one line, for the program's eval. The program keeps a line end in a variable.
std::string assignmentLine(const std::string& variable) {
  const std::size_t equals = variable.find('=');
  const std::string quoted = shellQuote(variable.substr(equals + 1));
  return variable.substr(0, equals + 1) + replaced(quoted, '\n', "'\"$moerun_newline\"'") + "\n";
}

// prepareWatchFolder() for a shell: the folder is used if it is this user's alone, not a link, and takes files. Sockets
// of killed jobs stay there; moe_top passes over them.
constexpr const char* kWatchElsewhere =
    "moerun_folder=/tmp/moecomm-$(id -u)\n"
    "mkdir -m 700 \"$moerun_folder\" 2>/dev/null\n"
    "if [ -z \"${MOECOMM_WATCH_FOLDER+set}\" ] &&\n"
    "  [ -n \"$(find \"$moerun_folder\" -prune -type d -user \"$(id -u)\" -perm 700 2>/dev/null)\" ] &&\n"
    "  (: >\"$moerun_folder/probe-$$\") 2>/dev/null; then\n"
    "  rm -f \"$moerun_folder/probe-$$\"\n"
    "  export MOECOMM_WATCH_FOLDER=\"$moerun_folder\"\n"
    "fi\n";

}  // namespace

std::vector<std::string> rankVariables(const Job& job, const Placement& placement) {
  std::vector<std::string> variables = {fmt::format("MOECOMM_RANK={}", placement.rank),
                                        fmt::format("MOECOMM_NRANKS={}", job.nranks),
                                        fmt::format("MOECOMM_LOCAL_RANK={}", placement.localRank),
                                        fmt::format("MOECOMM_LOCAL_NRANKS={}", placement.localCount),
                                        fmt::format("MOECOMM_ROOT={}", job.root),
                                        fmt::format("MOECOMM_SECRET={}", job.secret)};
  if (placement.local && !job.watchFolder.empty()) {
    variables.push_back(fmt::format("MOECOMM_WATCH_FOLDER={}", job.watchFolder));
  }
  return variables;
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
    throw Error(moeInvalidArgument, fmt::format("--export: invalid variable name '{}': use letters, digits and _, and "
                                                "begin with no digit",
                                                name));
  }
}

std::string shellQuote(const std::string& text) {
  return "'" + replaced(text, '\'', "'\\''") + "'";
}

std::string remoteScript(const Job& job) {
  std::string command;
  for (const std::string& word : job.command) command += shellQuote(word) + " ";
  const std::string directory = shellQuote(std::filesystem::current_path().string());
  // setsid gives the rank its own process group. The watcher ends that group when our end of the input closes.
  return fmt::format(
      "moerun_newline='\n'\n"
      "while IFS= read -r moerun_line || exit 1; do\n"
      "  [ -n \"$moerun_line\" ] || break\n"
      "  eval \"export $moerun_line\"\n"
      "done\n"
      "{}"
      "cd {} || exit 1\n"
      "exec 3<&0\n"
      "setsid {}</dev/null 3<&- & rank=$!\n"
      "(cat <&3; kill -s TERM -- -$rank; sleep 5; kill -s KILL -- -$rank) >/dev/null 2>&1 & watcher=$!\n"
      "wait $rank; status=$?\n"
      "kill $watcher 2>/dev/null\n"
      "kill -s KILL -- -$rank 2>/dev/null\n"
      "exit $status\n",
      job.watchedElsewhere ? kWatchElsewhere : "", directory, command);
}

std::string remoteInput(const Job& job, const Placement& placement) {
  std::string lines;
  for (const auto& list : {exportedVariables(job), rankVariables(job, placement)}) {
    for (const std::string& variable : list) lines += assignmentLine(variable);
  }
  return lines + "\n";  // an empty line ends them
}

}  // namespace moe::tools
