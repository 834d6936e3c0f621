#include "tools/moerun_remote.h"

#include <fmt/format.h>

#include <cstddef>
#include <filesystem>
#include <string_view>

namespace moe::tools {
namespace {

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

}  // namespace

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
      "cd {} || exit 1\n"
      "exec 3<&0\n"
      "setsid {}</dev/null 3<&- & rank=$!\n"
      "(cat <&3; kill -s TERM -- -$rank; sleep 5; kill -s KILL -- -$rank) >/dev/null 2>&1 & watcher=$!\n"
      "wait $rank; status=$?\n"
      "kill $watcher 2>/dev/null\n"
      "kill -s KILL -- -$rank 2>/dev/null\n"
      "exit $status\n",
      directory, command);
}

std::string remoteInput(const Job& job, const Placement& placement) {
  std::string lines;
  for (const auto& list : {exportedVariables(job), rankVariables(job, placement)}) {
    for (const std::string& variable : list) lines += assignmentLine(variable);
  }
  return lines + "\n";  // an empty line ends them
}

}  // namespace moe::tools
