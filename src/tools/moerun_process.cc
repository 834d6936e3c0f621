#include "tools/moerun_process.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

#include "base/error.h"
#include "tools/moerun_bind.h"
#include "tools/moerun_job.h"

namespace moe::tools {
namespace {

// The capacity of a pipe, unless it is enlarged.
constexpr std::size_t kPipeBytes = 65536;

struct Pipe {
  Fd read;
  Fd write;
};

Pipe makePipe() {
  std::array<int, 2> fds{};
  if (::pipe2(fds.data(), O_CLOEXEC) != 0) throw systemError("cannot make a pipe for a rank");
  return {Fd(fds[0]), Fd(fds[1])};
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

// The data that the child needs between fork and exec, where it must not allocate.
struct Start {
  int in, out, err;
  pid_t launcher;
  const Watcher& watcher;
  std::vector<char*> argv, envp;
  std::vector<unsigned long> mask;  // empty: moerun's
};

void bindTo(const std::vector<unsigned long>& mask) {
  if (mask.empty()) return;
  const auto* set = reinterpret_cast<const cpu_set_t*>(mask.data());
  if (::sched_setaffinity(0, mask.size() * sizeof mask[0], set) == 0) return;
  ::dprintf(STDERR_FILENO, "moerun: cannot bind this rank to its processors: %s\n", ::strerror(errno));
  ::_exit(126);
}

// The child's part. Never returns.
[[noreturn]] void becomeRank(const Start& start) {
  ::setpgid(0, 0);
  start.watcher.enroll(::getpid());
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != start.launcher) ::_exit(1);  // moerun died before the line above took effect
  ::dup2(start.in, STDIN_FILENO);
  ::dup2(start.out, STDOUT_FILENO);
  ::dup2(start.err, STDERR_FILENO);
  bindTo(start.mask);
  ::signal(SIGPIPE, SIG_DFL);
  sigset_t none;
  ::sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
  ::execvpe(start.argv[0], start.argv.data(), start.envp.data());
  const int error = errno;
  ::dprintf(STDERR_FILENO, "moerun: cannot run '%s': %s\n", start.argv[0], ::strerror(error));
  ::_exit(error == ENOENT ? 127 : 126);
}

RankProcess spawn(const Placement& placement, const Watcher& watcher, std::vector<std::string> command,
                  std::vector<std::string> environment, Fd in) {
  Pipe out = makePipe();
  Pipe err = makePipe();
  const Start start{in.get(), out.write.get(),   err.write.get(),       ::getpid(),
                    watcher,  pointers(command), pointers(environment), affinityMask(placement.processors)};
  const pid_t pid = ::fork();
  if (pid < 0) throw systemError(fmt::format("cannot fork for rank {}", placement.rank));
  if (pid == 0) becomeRank(start);
  ::setpgid(pid, pid);  // here too, because a signal may be due before the child has run
  return {placement, pid, std::move(out.read), std::move(err.read), Fd()};
}

RankProcess startLocal(const Job& job, const Placement& placement, const Watcher& watcher) {
  Fd null(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  if (!null) throw systemError("cannot open /dev/null");
  return spawn(placement, watcher, job.command, mergedEnvironment(rankVariables(job, placement)), std::move(null));
}

// ssh may read nothing until it has logged in, so the pipe must hold the whole text.
void writeWithoutWaiting(const Pipe& pipe, const std::string& text, int rank) {
  if (text.size() > kPipeBytes && ::fcntl(pipe.write.get(), F_SETPIPE_SZ, static_cast<int>(text.size())) < 0) {
    throw systemError(fmt::format("cannot pass {} bytes of variables to rank {}", text.size(), rank));
  }
  ::fcntl(pipe.write.get(), F_SETFL, O_NONBLOCK);
  const ssize_t written = ::write(pipe.write.get(), text.data(), text.size());
  if (written == static_cast<ssize_t>(text.size())) return;
  throw systemError(fmt::format("cannot send its variables to rank {}", rank), written < 0 ? errno : EAGAIN);
}

RankProcess startRemote(const Job& job, const Placement& placement, const Watcher& watcher) {
  std::vector<std::string> command = job.sshCommand;
  command.push_back(placement.host);
  command.push_back("exec /bin/sh -c " + shellQuote(remoteScript(job)));
  Pipe in = makePipe();
  writeWithoutWaiting(in, remoteInput(job, placement), placement.rank);
  RankProcess process = spawn(placement, watcher, command, mergedEnvironment({}), std::move(in.read));
  process.stop = std::move(in.write);
  return process;
}

}  // namespace

RankProcess startRank(const Job& job, const Placement& placement, const Watcher& watcher) {
  return placement.local ? startLocal(job, placement, watcher) : startRemote(job, placement, watcher);
}

}  // namespace moe::tools
