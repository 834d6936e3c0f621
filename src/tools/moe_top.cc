// moe_top shows running jobs from outside: what each rank does, how fast it is, and for which rank it waits. It asks
// the sockets of a folder. Jobs under moerun make these sockets, and so do jobs that find MOECOMM_WATCH_FOLDER set. On
// other hosts it starts moe_top, which passes on the answers of the ranks there.
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
#include <set>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include <CLI/CLI.hpp>

#include "base/error.h"
#include "base/host_name.h"
#include "tools/command_line.h"
#include "tools/moerun_plan.h"
#include "tools/program_text.h"
#include "tools/top_hosts.h"
#include "tools/watch_folder.h"

namespace moe::tools {
namespace {

constexpr std::chrono::milliseconds kAnswers{3000};

struct Options {
  std::string folder, dumpFolder;  // folder empty: that of jobs under moerun
  bool once = false, metrics = false, json = false, totals = false, answers = false;
  int interval = 1, hostTimeout = 10;
  std::string hosts, ssh = "ssh -o BatchMode=yes", remoteProgram = "moe_top";

  std::string folderHere() const { return folder.empty() ? defaultWatchFolder() : folder; }
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

std::vector<Answer> askHere(const Options& options) {
  return askAll(options.folderHere(), Deadline::after(kAnswers));
}

// Asks the hosts of --hosts. A host whose ranks cannot be asked does not hide those of others.
std::vector<Answer> askThem(const Options& options) {
  HostsPlan plan{{}, splitWords(options.ssh), options.remoteProgram, options.folder, options.hostTimeout};
  std::set<std::string> names;
  bool here = false;
  for (const HostSlots& host : parseHosts(options.hosts)) {
    if (!names.insert(host.name).second) continue;
    if (isThisHost(host.name, thisHostName())) {
      here = true;
    } else {
      plan.hosts.push_back(host.name);
    }
  }
  std::vector<Answer> answers = askHosts(plan);
  if (!here) return answers;
  try {
    for (Answer& answer : askHere(options)) answers.push_back(std::move(answer));
  } catch (const Error& error) {
    answers.push_back({thisHostName(), "", error.what()});
  }
  return answers;
}

using Jobs = std::map<std::string, std::map<int, RankDump>>;

// Reads a rank's dump. Another host may send anything, so what becomes a file's name or an index is checked.
void take(const Answer& answer, const Options& options, Jobs* jobs) {
  RankDump dump = parseDump(answer.text, answer.socket);
  if (dump.job.find_first_not_of("0123456789abcdef") != std::string::npos) {
    throw std::runtime_error(fmt::format("{}: its job '{}' is not hexadecimal", answer.socket, dump.job));
  }
  std::map<int, RankDump>& ranks = (*jobs)[dump.job];
  if (!ranks.empty() && ranks.begin()->second.nranks != dump.nranks) {
    throw std::runtime_error(fmt::format("{}: its job {} has {} ranks there and {} elsewhere", answer.socket, dump.job,
                                         dump.nranks, ranks.begin()->second.nranks));
  }
  if (!options.dumpFolder.empty()) keep(options.dumpFolder, dump, answer.text);
  ranks[dump.rank] = std::move(dump);
}

View look(const Options& options) {
  View view;
  Jobs jobs;
  for (const Answer& answer : options.hosts.empty() ? askHere(options) : askThem(options)) {
    if (answer.text.empty()) {
      view.problems.push_back(answer.socket + ": " + answer.problem);
      continue;
    }
    try {
      take(answer, options, &jobs);
    } catch (const std::runtime_error& error) {
      view.problems.emplace_back(error.what());
    }
  }
  for (auto& [job, ranks] : jobs) {
    if (ranks.empty()) continue;  // its dump could not be kept
    view.jobs.emplace_back();
    for (auto& [rank, dump] : ranks) view.jobs.back().push_back(std::move(dump));
  }
  return view;
}

std::string nobodyText(const Options& options) {
  if (options.hosts.empty()) return fmt::format("no job offers a socket in {}", options.folderHere());
  return fmt::format("no job offers a socket on {}", options.hosts);
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

// For a moe_top of another host.
int passOn(const Options& options) {
  return show(answersText(askHere(options))) ? 0 : 1;
}

ProgramNotes notes() {
  return {{{"0", "the ranks answered"},
           {"1", "with --once, --json or --metrics: there is no job, or a rank or a host did not answer"},
           {"2", "an option is invalid"}},
          {{"MOECOMM_WATCH_FOLDER", "the folder, if none is given"}},
          {"moe_top", "moe_top --once --totals", "moe_top --hosts a,b", "moe_top --once --json | jq '.jobs[].slowest'",
           "moe_top --once --dump dumps && moe_trace dumps -o trace.json"}};
}

CLI::Validator aWord() {
  return CLI::Validator(
      [](const std::string& text) { return splitWords(text).empty() ? std::string("it is empty") : std::string(); },
      "");
}

void declareHosts(CLI::App& app, Options& options) {
  app.add_option("--hosts", options.hosts, "hosts whose ranks to show, as a,b; slots, as in moerun's list, are ignored")
      ->type_name("LIST");
  app.add_option("--ssh", options.ssh, "command that reaches a host; the host and one command follow it")
      ->check(aWord())
      ->type_name("COMMAND")
      ->capture_default_str();
  app.add_option("--remote-program", options.remoteProgram, "name or path of moe_top on other hosts")
      ->check(aWord())
      ->type_name("PATH")
      ->capture_default_str();
  app.add_option("--host-timeout", options.hostTimeout, "seconds for a host to answer")
      ->check(wholeNumber(1, 3600))
      ->capture_default_str();
  app.add_flag("--answers", options.answers, "print the ranks' dumps on one line, once, for moe_top of another host")
      ->excludes("--hosts");
}

void declare(CLI::App& app, Options& options) {
  app.add_option("folder", options.folder,
                 "where the jobs offer their sockets, on each host; default: that of jobs under moerun")
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
  declareHosts(app, options);
}

// A list that cannot be read is like any other wrong option.
void checkHosts(const Options& options) {
  if (options.hosts.empty()) return;
  try {
    parseHosts(options.hosts);
  } catch (const Error& error) {
    throw CLI::ValidationError(error.what());
  }
}

int run(int argc, char** argv) {
  Options options;
  CLI::App app("Shows what the ranks of running jobs do, how fast, and whom they wait for: moe_top [OPTIONS] [FOLDER]");
  prepareCommandLine(app, "moe_top", notes());
  declare(app, options);
  const int status = parseCommandLine(app, argc, argv, [&] { checkHosts(options); });
  if (status >= 0) return status;
  try {
    if (options.answers) return passOn(options);
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
