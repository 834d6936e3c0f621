#include "tools/moerun_supervisor.h"

#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/error.h"

namespace moe::tools {
namespace {

constexpr int kTimeoutStatus = 124;
constexpr int kLossStatus = 1;

// Time for output that a rank's own children may still produce after the rank has ended.
constexpr std::chrono::milliseconds kDrainTime{500};

// Time for a slow reader once moerun was told to end.
constexpr std::chrono::milliseconds kFlushTime{1000};

std::string describeEnd(int status) {
  if (WIFSIGNALED(status)) {
    return fmt::format("was ended by signal {} ({})", WTERMSIG(status), ::strsignal(WTERMSIG(status)));
  }
  return fmt::format("ended with status {}", WEXITSTATUS(status));
}

bool sameFile(int a, int b) {
  struct stat first = {};
  struct stat second = {};
  return ::fstat(a, &first) == 0 && ::fstat(b, &second) == 0 && first.st_dev == second.st_dev &&
         first.st_ino == second.st_ino;
}

// Milliseconds for poll.
int millisecondsTo(std::optional<std::chrono::steady_clock::time_point> moment) {
  if (!moment) return -1;
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(*moment - std::chrono::steady_clock::now()).count();
  return static_cast<int>(std::clamp<long long>(left, 0, 1 << 30));
}

}  // namespace

Fd takeSignals() {
  sigset_t set;
  ::sigemptyset(&set);
  for (const int signal : {SIGCHLD, SIGINT, SIGTERM, SIGHUP}) ::sigaddset(&set, signal);
  if (::sigprocmask(SIG_BLOCK, &set, nullptr) != 0) throw systemError("cannot block signals");
  ::signal(SIGPIPE, SIG_IGN);
  Fd signals(::signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK));
  if (!signals) throw systemError("cannot make a signal descriptor");
  return signals;
}

Supervisor::Supervisor(Fd signals, const Watcher& watcher, const SupervisorOptions& options)
    : signals_(std::move(signals)), watcher_(watcher), options_(options) {
  sinks_.push_back(std::make_unique<Sink>(STDOUT_FILENO, "standard output"));
  // With two threads, the order of output to one place would change.
  if (!sameFile(STDOUT_FILENO, STDERR_FILENO)) {
    sinks_.push_back(std::make_unique<Sink>(STDERR_FILENO, "standard error"));
  }
  if (options_.timeout.count() > 0) jobEnd_ = deadline_ = Clock::now() + options_.timeout;
}

Supervisor::~Supervisor() {
  for (Rank& rank : ranks_) {
    if (!rank.running) continue;
    ::kill(-rank.process.pid, SIGKILL);
    ::waitpid(rank.process.pid, nullptr, 0);
  }
  // main may wait for a reader with its last output, so from here on signals end the process.
  sigset_t none;
  ::sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
}

template <class... Args>
void Supervisor::say(fmt::format_string<Args...> format, Args&&... args) {
  errors().write(fmt::format("moerun: {}\n", fmt::format(format, std::forward<Args>(args)...)));
}

void Supervisor::add(RankProcess process) {
  const std::string tag = options_.tag ? fmt::format("[{}] ", process.placement.rank) : "";
  OutputStream out(std::move(process.out), sinks_.front().get(), tag);
  OutputStream err(std::move(process.err), sinks_.back().get(), tag);
  ranks_.push_back({std::move(process), std::move(out), std::move(err)});
}

int Supervisor::run() {
  while (anyRunning()) pollOnce();
  writeRest();
  reportLoss();
  return status_.value_or(0);
}

// The ranks have ended. Their output may still be in pipes, or wait for a slow reader.
void Supervisor::writeRest() {
  const bool told = userSignals_ > 0 || (jobEnd_ && Clock::now() >= *jobEnd_);
  phase_ = Phase::writing;
  deadline_ = told ? Clock::now() + kFlushTime : jobEnd_;
  const auto drained = Clock::now() + kDrainTime;
  for (Rank& rank : ranks_) {
    rank.out.takeRest();
    rank.err.takeRest();
  }
  while (anyOutputOpen() && Clock::now() < drained && !tooLate()) pollOnce(drained);
  for (Rank& rank : ranks_) {
    rank.out.finish();
    rank.err.finish();
  }
  while (!allWritten() && !tooLate()) pollOnce();
  if (!allWritten() && !told && !status_) status_ = kTimeoutStatus;
}

void Supervisor::reportLoss() {
  std::vector<std::string> losses;
  for (const auto& sink : sinks_) losses.push_back(sink->loss());
  for (const std::string& loss : losses) {
    if (loss.empty()) continue;
    if (!status_) status_ = kLossStatus;
    say("{}", loss);
  }
  deadline_ = Clock::now() + kFlushTime;
  while (!errors().idle() && !tooLate()) pollOnce();
}

bool Supervisor::tooLate() const {
  return deadline_ && Clock::now() >= *deadline_;
}

void Supervisor::pollOnce(std::optional<Clock::time_point> until) {
  std::vector<pollfd> fds = {{signals_.get(), POLLIN, 0}};
  for (const auto& sink : sinks_) fds.push_back({sink->changed(), POLLIN, 0});
  const std::size_t firstStream = fds.size();
  std::vector<OutputStream*> streams;
  for (Rank& rank : ranks_) {
    for (OutputStream* stream : {&rank.out, &rank.err}) {
      if (!stream->wanted()) continue;
      fds.push_back({stream->fd(), POLLIN, 0});
      streams.push_back(stream);
    }
  }
  if (::poll(fds.data(), fds.size(), millisecondsTo(until)) < 0 && errno != EINTR)
    throw systemError("cannot poll the ranks");
  for (const auto& sink : sinks_) sink->acknowledge();
  for (std::size_t i = 0; i < streams.size(); ++i) {
    if (fds[firstStream + i].revents != 0) streams[i]->drain();
  }
  if ((fds[0].revents & POLLIN) != 0) readSignals();
  if (phase_ != Phase::writing && tooLate()) onDeadline();
}

void Supervisor::readSignals() {
  signalfd_siginfo info;
  bool childEnded = false;
  while (::read(signals_.get(), &info, sizeof(info)) == sizeof(info)) {
    if (info.ssi_signo == SIGCHLD) {
      childEnded = true;
    } else {
      onUserSignal(static_cast<int>(info.ssi_signo));
    }
  }
  if (childEnded) reapRanks();
}

void Supervisor::onUserSignal(int signal) {
  if (!status_) status_ = 128 + signal;
  ++userSignals_;
  if (phase_ == Phase::writing) {
    deadline_ = Clock::now() + (userSignals_ > 1 ? std::chrono::milliseconds(0) : kFlushTime);
    return;
  }
  if (userSignals_ > 1) {
    say("asked a second time to end: killing the ranks");
    signalAll(SIGKILL);
    enter(Phase::killed, options_.kill);
    return;
  }
  signalAll(signal);
  enter(Phase::grace, options_.grace);
}

void Supervisor::reapRanks() {
  for (Rank& rank : ranks_) {
    siginfo_t info{};
    if (!rank.running) continue;
    const auto id = static_cast<id_t>(rank.process.pid);
    if (::waitid(P_PID, id, &info, WEXITED | WNOHANG | WNOWAIT) != 0 || info.si_pid == 0) continue;
    // Until the rank is reaped, nobody else can get its group's number. So this is the time to end what the rank left
    // behind.
    ::kill(-rank.process.pid, SIGKILL);
    int status = 0;
    ::waitpid(rank.process.pid, &status, 0);
    watcher_.forget(rank.process.pid);
    rank.running = false;
    rank.out.drain();
    rank.err.drain();
    onRankEnd(rank, status);
  }
}

void Supervisor::onRankEnd(Rank& rank, int status) {
  rank.process.stop.reset();
  if (status == 0) return;
  const bool first = !status_;
  if (first) status_ = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
  if (phase_ <= Phase::grace) {
    say("rank {} (process {} on {}) {}", rank.process.placement.rank, rank.process.pid, rank.process.placement.host,
        describeEnd(status));
  }
  if (first && anyRunning()) enter(Phase::grace, options_.grace);
}

void Supervisor::onDeadline() {
  if (phase_ == Phase::running) {
    say("the job has not ended within {} ms", options_.timeout.count());
    status_ = kTimeoutStatus;
    phase_ = Phase::grace;  // the timeout replaces the grace period
  }
  if (phase_ == Phase::grace) {
    if (anyRunning()) say("ending the ranks that are left");
    signalAll(SIGTERM);
    enter(Phase::terminating, options_.kill);
  } else {
    signalAll(SIGKILL);
    enter(Phase::killed, options_.kill);
  }
}

void Supervisor::enter(Phase phase, std::chrono::milliseconds wait) {
  phase_ = phase;
  deadline_ = Clock::now() + wait;
}

void Supervisor::signalAll(int signal) {
  for (Rank& rank : ranks_) {
    if (!rank.running) continue;
    // Only the watcher on the far side can reach a remote rank. ssh itself is killed last, so that output still comes.
    rank.process.stop.reset();
    if (rank.process.placement.local || signal == SIGKILL) ::kill(-rank.process.pid, signal);
  }
}

bool Supervisor::anyRunning() const {
  return std::any_of(ranks_.begin(), ranks_.end(), [](const Rank& rank) { return rank.running; });
}

bool Supervisor::anyOutputOpen() const {
  return std::any_of(ranks_.begin(), ranks_.end(), [](const Rank& rank) { return rank.out.open() || rank.err.open(); });
}

bool Supervisor::allWritten() const {
  return std::all_of(sinks_.begin(), sinks_.end(), [](const auto& sink) { return sink->idle(); });
}

}  // namespace moe::tools
