#include "tools/moerun_watcher.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <vector>

#include "base/error.h"

namespace moe::tools {
namespace {

// Runs alone in its session, so that neither the terminal's signals nor one to moerun's group reach it. It has none of
// moerun's other descriptors, so that readers of moerun's output see its end.
void leaveMoerun(int line) {
  ::setsid();
  sigset_t all;
  ::sigfillset(&all);
  ::sigprocmask(SIG_BLOCK, &all, nullptr);
  ::prctl(PR_SET_NAME, "moerun-watcher");  // so that `killall moerun` does not hit it
  ::dup2(line, STDIN_FILENO);
  ::close_range(STDIN_FILENO + 1, ~0U, 0);
}

// Reads numbers of groups: a positive one starts, a negative one has ended. Never returns.
[[noreturn]] void watch(int line) {
  leaveMoerun(line);
  std::vector<pid_t> groups;
  pid_t number = 0;
  ssize_t count = 0;
  while ((count = ::read(STDIN_FILENO, &number, sizeof number)) > 0 || (count < 0 && errno == EINTR)) {
    if (count != sizeof number) continue;
    if (number > 0) {
      groups.push_back(number);
    } else {
      groups.erase(std::remove(groups.begin(), groups.end(), -number), groups.end());
    }
  }
  for (const pid_t group : groups) ::kill(-group, SIGKILL);
  ::_exit(0);
}

// 4 bytes go into a pipe whole or not at all. The pipe does not block, so that a stopped watcher cannot stop moerun.
void send(int line, pid_t number) noexcept {
  while (::write(line, &number, sizeof number) < 0 && errno == EINTR) {
  }
}

}  // namespace

Watcher::Watcher() {
  std::array<int, 2> fds{};
  if (::pipe2(fds.data(), O_CLOEXEC) != 0) throw systemError("cannot make a pipe for the watcher");
  const Fd other(fds[0]);
  line_ = Fd(fds[1]);
  pid_ = ::fork();
  if (pid_ < 0) throw systemError("cannot fork the watcher");
  if (pid_ == 0) watch(other.get());
  ::fcntl(line_.get(), F_SETFL, O_NONBLOCK);
}

Watcher::~Watcher() {
  ::kill(pid_, SIGKILL);
  ::waitpid(pid_, nullptr, 0);
}

void Watcher::enroll(pid_t group) const noexcept {
  send(line_.get(), group);
}

void Watcher::forget(pid_t group) const noexcept {
  send(line_.get(), -group);
}

}  // namespace moe::tools
