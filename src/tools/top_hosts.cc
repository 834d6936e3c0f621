#include "tools/top_hosts.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <memory>
#include <optional>
#include <stdexcept>

#include "base/deadline.h"
#include "base/error.h"
#include "base/fd.h"
#include "base/printable.h"
#include "bootstrap/net/poll_set.h"
#include "tools/moerun_job.h"

namespace moe::tools {
namespace {

using bootstrap::PollSet;

constexpr std::size_t kOutputMax = std::size_t{256} << 20;
// How often an end is looked for that no pipe shows: a master connection of ssh may keep the pipes open.
constexpr int kLookMs = 20;
constexpr int kSshFailed = 255, kNotFound = 127, kBadOption = 2;

// One stream of a child.
class ChildStream {
 public:
  ChildStream() {
    std::array<int, 2> fds{};
    if (::pipe2(fds.data(), O_CLOEXEC) != 0) throw systemError("cannot make a pipe for ssh");
    read_ = Fd(fds[0]);
    write_ = Fd(fds[1]);
    ::fcntl(read_.get(), F_SETFL, O_NONBLOCK);
  }

  int childEnd() const { return write_.get(); }
  void closeChildEnd() { write_.reset(); }
  int fd() const { return read_.get(); }
  bool open() const { return static_cast<bool>(read_); }
  const std::string& text() const { return text_; }
  bool tooLong() const { return text_.size() > kOutputMax; }

  void readAll() {
    std::array<char, 65536> part{};
    while (open() && !tooLong()) {
      const ssize_t count = ::read(read_.get(), part.data(), part.size());
      if (count > 0) {
        text_.append(part.data(), static_cast<std::size_t>(count));
      } else if (count == 0 || (errno != EINTR && errno != EAGAIN)) {
        read_.reset();
      } else if (errno == EAGAIN) {
        return;
      }
    }
  }

 private:
  Fd read_, write_;
  std::string text_;
};

// Standard input is empty, so that ssh takes nothing of ours.
pid_t startChild(const std::vector<std::string>& command, const ChildStream& out, const ChildStream& err) {
  std::vector<std::string> words = command;
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  ::posix_spawn_file_actions_init(&actions);
  ::posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  ::posix_spawn_file_actions_adddup2(&actions, out.childEnd(), STDOUT_FILENO);
  ::posix_spawn_file_actions_adddup2(&actions, err.childEnd(), STDERR_FILENO);
  pid_t pid = -1;
  const int error = ::posix_spawnp(&pid, argv[0], &actions, nullptr, argv.data(), environ);
  ::posix_spawn_file_actions_destroy(&actions);
  if (error != 0) throw systemError(fmt::format("cannot run '{}'", words[0]), error);
  return pid;
}

std::string firstLine(const std::string& text) {
  return printable(text.substr(0, text.find_first_of("\r\n")));
}

// The last line that says something. ssh prints warnings before its reason.
std::string lastLine(std::string text) {
  while (!text.empty() && (text.back() == '\n' || text.back() == '\r')) text.pop_back();
  return printable(text.substr(text.rfind('\n') + 1));
}

// One host that is asked, as part of a poll loop.
class HostQuestion {
 public:
  HostQuestion(const HostsPlan& plan, const std::string& host) : plan_(plan), host_(host) {
    std::vector<std::string> command = plan.ssh;
    command.push_back(host);
    const std::string folder = plan.folder.empty() ? "" : " " + shellQuote(plan.folder);
    command.push_back("exec /bin/sh -c " + shellQuote("exec " + shellQuote(plan.program) + " --answers" + folder));
    pid_ = startChild(command, out_, err_);
    out_.closeChildEnd();
    err_.closeChildEnd();
  }
  ~HostQuestion() {
    if (pid_ < 0) return;
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
  }
  HostQuestion(const HostQuestion&) = delete;
  HostQuestion& operator=(const HostQuestion&) = delete;

  bool open() const { return pid_ >= 0 && !out_.tooLong(); }

  void arm(PollSet& set) const {
    for (const ChildStream* output : {&out_, &err_}) {
      if (output->open()) set.add(output->fd(), POLLIN);
    }
  }

  // A process that has ended has written everything.
  void serve() {
    int status = 0;
    const bool ended = ::waitpid(pid_, &status, WNOHANG) == pid_;
    out_.readAll();
    err_.readAll();
    if (!ended) return;
    pid_ = -1;
    status_ = status;
  }

  // The host's answers, or one that says why there are none.
  std::vector<Answer> take() const {
    try {
      if (!status_) throw std::runtime_error(whyOpen());
      if (!WIFEXITED(*status_) || WEXITSTATUS(*status_) != 0) throw std::runtime_error(whyFailed());
      std::vector<Answer> answers = parseAnswers(out_.text());
      for (Answer& answer : answers) answer.socket = host_ + ":" + answer.socket;
      return answers;
    } catch (const std::exception& error) {
      return {{host_, "", error.what()}};
    }
  }

 private:
  std::string whyOpen() const {
    if (out_.tooLong()) return fmt::format("it sent more than {} MiB", kOutputMax >> 20);
    return fmt::format("no answer within {} s (--host-timeout)", plan_.timeoutSeconds);
  }

  std::string whyFailed() const {
    const std::string said = lastLine(err_.text());
    if (!WIFEXITED(*status_)) return fmt::format("signal {} ended {}", WTERMSIG(*status_), plan_.ssh[0]);
    const int code = WEXITSTATUS(*status_);
    if (code == kNotFound)
      return fmt::format("there is no {} there: name it by --remote-program ({})", plan_.program, said);
    if (code == kBadOption)
      return fmt::format("its {} is of another version: {}", plan_.program, firstLine(err_.text()));
    const std::string who = code == kSshFailed ? plan_.ssh[0] : plan_.program;
    return fmt::format("{} ended with status {}{}{}", who, code, said.empty() ? "" : ": ", said);
  }

  const HostsPlan& plan_;
  const std::string host_;
  ChildStream out_, err_;
  pid_t pid_ = -1;  // -1: it has ended
  std::optional<int> status_;
};

using Questions = std::vector<std::unique_ptr<HostQuestion>>;

void serveAll(const Questions& questions, Deadline end) {
  PollSet set;
  for (;;) {
    set.clear();
    bool open = false;
    for (const auto& question : questions) {
      if (!question->open()) continue;
      question->arm(set);
      open = true;
    }
    if (!open || end.expired()) return;
    set.wait(std::min(end.leftMs(), kLookMs));
    for (const auto& question : questions) {
      if (question->open()) question->serve();
    }
  }
}

}  // namespace

std::vector<Answer> askHosts(const HostsPlan& plan) {
  const Deadline end = Deadline::after(std::chrono::seconds(plan.timeoutSeconds));
  Questions questions;
  std::vector<Answer> answers;
  for (const std::string& host : plan.hosts) {
    try {
      questions.push_back(std::make_unique<HostQuestion>(plan, host));
    } catch (const Error& error) {
      answers.push_back({host, "", error.what()});
    }
  }
  serveAll(questions, end);
  for (const auto& question : questions) {
    for (Answer& answer : question->take()) answers.push_back(std::move(answer));
  }
  return answers;
}

}  // namespace moe::tools
