// moe_top shows running jobs from outside: what each rank of this host does, how fast it is, and for which rank it
// waits. It asks the sockets of a folder. Jobs under moerun make these sockets, and so do jobs that find
// MOECOMM_WATCH_FOLDER set.
#include "tools/moe_top.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <fstream>
#include <map>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include <CLI/CLI.hpp>

#include "tools/command_line.h"
#include "tools/program_text.h"
#include "tools/watch_folder.h"

namespace moe::tools {
namespace {

constexpr std::chrono::milliseconds kAnswers{3000};

struct Options {
  std::string folder = defaultWatchFolder(), dumpFolder;
  bool once = false, metrics = false, json = false, totals = false;
  int interval = 1;
};

struct View {
  std::vector<std::vector<RankDump>> jobs;
  std::vector<std::string> problems;
};

// The file is written like dumps of failures: only the user may read it, and it is replaced as a whole.
void keep(const std::string& folder, const RankDump& dump, const std::string& text) {
  const std::string path = fmt::format("{}/moecomm-{}-rank{}.json", folder, dump.job, dump.rank);
  const mode_t before = ::umask(077);
  std::ofstream file(path + ".part", std::ios::binary);
  ::umask(before);
  file << text;
  file.close();
  if (!file || std::rename((path + ".part").c_str(), path.c_str()) != 0) {
    throw std::runtime_error(path + ": cannot be written");
  }
}

View look(const Options& options) {
  View view;
  std::map<std::string, std::map<int, RankDump>> jobs;
  for (const Answer& answer : askAll(options.folder, Deadline::after(kAnswers))) {
    if (answer.text.empty()) {
      view.problems.push_back(answer.socket + ": " + answer.problem);
      continue;
    }
    RankDump dump = parseDump(answer.text, answer.socket);
    if (!options.dumpFolder.empty()) keep(options.dumpFolder, dump, answer.text);
    jobs[dump.job][dump.rank] = std::move(dump);
  }
  for (auto& [job, ranks] : jobs) {
    view.jobs.emplace_back();
    for (auto& [rank, dump] : ranks) view.jobs.back().push_back(std::move(dump));
  }
  return view;
}

std::string nobodyText(const Options& options) {
  return fmt::format("no job offers a socket in {}", options.folder);
}

std::string textOf(const View& view, const Options& options) {
  if (options.metrics) return topMetrics(view.jobs);
  if (options.json) return topJson(view.jobs, view.problems);
  std::string text;
  for (const auto& dumps : view.jobs) text += (options.totals ? totalsTable(dumps) : topTable(dumps)) + "\n";
  if (view.jobs.empty()) text = nobodyText(options) + "\n";
  return text;
}

bool show(const std::string& text) {
  return std::fputs(text.c_str(), stdout) >= 0 && std::fflush(stdout) == 0;
}

// On a terminal each output replaces the one before. Elsewhere outputs follow each other.
int watch(const Options& options) {
  const char* home = ::isatty(STDOUT_FILENO) != 0 ? "\033[H\033[2J" : "";
  for (;;) {
    const View view = look(options);
    std::string text = home + textOf(view, options);
    for (const std::string& problem : view.problems) text += problem + "\n";
    if (!show(text)) return 1;
    std::this_thread::sleep_for(std::chrono::seconds(options.interval));
  }
}

int lookOnce(const Options& options) {
  const View view = look(options);
  for (const std::string& problem : view.problems) fmt::print(stderr, "moe_top: {}\n", problem);
  if (view.jobs.empty()) {
    fmt::print(stderr, "moe_top: {}\n", nobodyText(options));
    if (options.json) show(textOf(view, options));
    return 1;
  }
  return show(textOf(view, options)) && view.problems.empty() ? 0 : 1;
}

ProgramNotes notes() {
  return {{{"0", "the ranks answered"},
           {"1", "with --once, --json or --metrics: there is no job, or a rank did not answer"},
           {"2", "an option is invalid"}},
          {{"MOECOMM_WATCH_FOLDER", "the folder, if none is given"}},
          {"moe_top", "moe_top --once --totals", "moe_top --once --json | jq '.jobs[].slowest'",
           "moe_top --once --dump dumps && moe_trace dumps -o trace.json"}};
}

int run(int argc, char** argv) {
  Options options;
  CLI::App app("Shows what the ranks of running jobs do, how fast, and whom they wait for: moe_top [OPTIONS] [FOLDER]");
  prepareCommandLine(app, "moe_top", notes());
  app.add_option("folder", options.folder, "where the jobs offer their sockets; default: that of jobs under moerun")
      ->envname("MOECOMM_WATCH_FOLDER")
      ->type_name("FOLDER");
  app.add_flag("--once", options.once, "look once, and exit with 1 if there is no job or a rank did not answer");
  app.add_flag("--totals", options.totals,
               "show what the ranks have done since the job began, instead of its latest steps");
  app.add_flag("--metrics", options.metrics, "print metrics in Prometheus' text form, once");
  app.add_flag("--json", options.json, "print the table as JSON, once")->excludes("--metrics");
  app.add_option("--dump", options.dumpFolder, "also write the ranks' dumps to this folder, for moe_trace")
      ->check(CLI::ExistingDirectory)
      ->type_name("FOLDER");
  app.add_option("--interval", options.interval, "seconds between looks")
      ->check(wholeNumber(1, 3600))
      ->capture_default_str();
  const int status = parseCommandLine(app, argc, argv, [] {});
  if (status >= 0) return status;
  try {
    return options.once || options.metrics || options.json ? lookOnce(options) : watch(options);
  } catch (const std::exception& error) {
    fmt::print(stderr, "moe_top: {}\n", error.what());
    return 1;
  }
}

}  // namespace
}  // namespace moe::tools

int main(int argc, char** argv) {
  return moe::tools::statusOfOutput("moe_top", moe::tools::run(argc, argv));
}
