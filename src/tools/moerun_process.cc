#include "tools/moerun_process.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <utility>

#include "base/error.h"

namespace moe::tools {
namespace {

struct Pipe {
  Fd read;
  Fd write;
};

Pipe makePipe() {
  std::array<int, 2> fds{};
  if (::pipe2(fds.data(), O_CLOEXEC) != 0) throw systemError("cannot make a pipe for a rank");
  return {Fd(fds[0]), Fd(fds[1])};
}

// Every variable but the secret, as NAME=value.
std::vector<std::string> rankVariables(const Job& job, const Placement& placement) {
  return {fmt::format("MOECOMM_RANK={}", placement.rank), fmt::format("MOECOMM_NRANKS={}", job.nranks),
          fmt::format("MOECOMM_LOCAL_RANK={}", placement.localRank),
          fmt::format("MOECOMM_LOCAL_NRANKS={}", placement.localCount), fmt::format("MOECOMM_ROOT={}", job.root)};
}

bool sameName(const std::string& a, const std::string& b) {
  return a.substr(0, a.find('=')) == b.substr(0, b.find('='));
}

// This process's environment with `variables` on top.
std::vector<std::string> mergedEnvironment(const std::vector<std::string>& variables) {
  std::vector<std::string> merged = variables;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string variable = *entry;
    const bool replaced = std::any_of(variables.begin(), variables.end(),
                                      [&](const std::string& other) { return sameName(variable, other); });
    if (!replaced) merged.push_back(variable);
  }
  return merged;
}

std::vector<char*> pointers(std::vector<std::string>& words) {
  std::vector<char*> result;
  result.reserve(words.size() + 1);
  for (std::string& word : words) result.push_back(word.data());
  result.push_back(nullptr);
  return result;
}

// What the child does between fork and exec. Never returns.
[[noreturn]] void becomeRank(int in, int out, int err, pid_t launcher, char** argv, char** envp) {
  ::setpgid(0, 0);
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != launcher) ::_exit(1);  // moerun died before the line above took effect
  ::dup2(in, STDIN_FILENO);
  ::dup2(out, STDOUT_FILENO);
  ::dup2(err, STDERR_FILENO);
  ::signal(SIGPIPE, SIG_DFL);
  sigset_t none;
  ::sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
  ::execvpe(argv[0], argv, envp);
  const int error = errno;
  ::dprintf(STDERR_FILENO, "moerun: cannot run '%s': %s\n", argv[0], ::strerror(error));
  ::_exit(error == ENOENT ? 127 : 126);
}

RankProcess spawn(const Placement& placement, std::vector<std::string> command, std::vector<std::string> environment,
                  Fd in) {
  Pipe out = makePipe();
  Pipe err = makePipe();
  const std::vector<char*> argv = pointers(command);
  const std::vector<char*> envp = pointers(environment);
  const pid_t launcher = ::getpid();
  const pid_t pid = ::fork();
  if (pid < 0) throw systemError(fmt::format("cannot fork for rank {}", placement.rank));
  if (pid == 0) {
    becomeRank(in.get(), out.write.get(), err.write.get(), launcher, const_cast<char**>(argv.data()),
               const_cast<char**>(envp.data()));
  }
  ::setpgid(pid, pid);  // here too: a signal may be due before the child has run
  return {placement, pid, std::move(out.read), std::move(err.read), Fd()};
}

RankProcess startLocal(const Job& job, const Placement& placement) {
  std::vector<std::string> variables = rankVariables(job, placement);
  variables.push_back("MOECOMM_SECRET=" + job.secret);
  Fd null(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  if (!null) throw systemError("cannot open /dev/null");
  return spawn(placement, job.command, mergedEnvironment(variables), std::move(null));
}

RankProcess startRemote(const Job& job, const Placement& placement) {
  std::vector<std::string> command = job.sshCommand;
  command.push_back(placement.host);
  command.push_back("exec /bin/sh -c " + shellQuote(remoteScript(job, placement)));
  Pipe in = makePipe();
  RankProcess process = spawn(placement, command, mergedEnvironment({}), std::move(in.read));
  const std::string line = job.secret + "\n";
  // 33 bytes fit an empty pipe. If ssh is gone already, its exit status tells.
  if (::write(in.write.get(), line.data(), line.size()) < 0 && errno != EPIPE) {
    throw systemError(fmt::format("cannot send the secret to rank {}", placement.rank));
  }
  process.stop = std::move(in.write);
  return process;
}

// The caller's MOECOMM_ settings and the variables named by --export. The secret travels on standard input alone.
std::vector<std::string> exportedVariables(const Job& job) {
  std::vector<std::string> exported;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string variable = *entry;
    const std::string name = variable.substr(0, variable.find('='));
    const bool wanted = std::find(job.exports.begin(), job.exports.end(), name) != job.exports.end();
    if ((variable.rfind("MOECOMM_", 0) == 0 || wanted) && name != "MOECOMM_SECRET") exported.push_back(variable);
  }
  return exported;
}

}  // namespace

std::string shellQuote(const std::string& text) {
  std::string quoted = "'";
  for (const char c : text) {
    if (c == '\'') {
      quoted += "'\\''";
    } else {
      quoted += c;
    }
  }
  return quoted + "'";
}

std::string remoteScript(const Job& job, const Placement& placement) {
  std::string variables;
  for (const auto& list : {exportedVariables(job), rankVariables(job, placement)}) {
    for (const std::string& variable : list) {
      const std::size_t equals = variable.find('=');
      variables += variable.substr(0, equals + 1) + shellQuote(variable.substr(equals + 1)) + " ";
    }
  }
  std::string command;
  for (const std::string& word : job.command) command += shellQuote(word) + " ";
  const std::string directory = shellQuote(std::filesystem::current_path().string());
  // setsid gives the rank a process group of its own; the watcher ends that group when our end of the input closes.
  return fmt::format(
      "IFS= read -r MOECOMM_SECRET || exit 1\n"
      "export MOECOMM_SECRET {}\n"
      "cd {} || exit 1\n"
      "exec 3<&0\n"
      "setsid {}</dev/null 3<&- & rank=$!\n"
      "(cat <&3; kill -s TERM -- -$rank; sleep 5; kill -s KILL -- -$rank) >/dev/null 2>&1 & watcher=$!\n"
      "wait $rank; status=$?\n"
      "kill $watcher 2>/dev/null\n"
      "exit $status\n",
      variables, directory, command);
}

RankProcess startRank(const Job& job, const Placement& placement) {
  return placement.local ? startLocal(job, placement) : startRemote(job, placement);
}

}  // namespace moe::tools
