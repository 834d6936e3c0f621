// Watches the ranks of a job: moves their output, notices how each one ends, and ends the others when one has failed.
// It has one poll loop, which nothing can delay.
#pragma once

#include <fmt/format.h>
#include <sys/signalfd.h>

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/fd.h"
#include "tools/moerun_output.h"
#include "tools/moerun_process.h"
#include "tools/moerun_watcher.h"

namespace moe::tools {

struct SupervisorOptions {
  std::chrono::milliseconds grace{10000};  // for the survivors to report, once a rank has failed
  std::chrono::milliseconds kill{5000};    // between SIGTERM and SIGKILL
  std::chrono::milliseconds timeout{0};    // for the whole job; 0: none
  bool tag = true;
};

// Blocks the signals that the supervisor receives through its descriptor. Call it before the first rank starts, so that
// no SIGCHLD is lost. Throws moe::Error.
Fd takeSignals();

class Supervisor {
 public:
  // Tells the watcher which groups have ended.
  Supervisor(Fd signals, const Watcher& watcher, const SupervisorOptions& options);

  // From now on the rank ends with the supervisor.
  void add(RankProcess process);

  // Returns when all ranks have ended and their output is written. The status is 0; the first failing rank's (128 +
  // signal for a signal); 124 after the timeout; 128 + signal if moerun itself was told to end; or 1 if output was
  // lost. It waits for the reader of the output, but not beyond the timeout, and not after it was told to end.
  int run();

  ~Supervisor();
  Supervisor(const Supervisor&) = delete;
  Supervisor& operator=(const Supervisor&) = delete;

 private:
  using Clock = std::chrono::steady_clock;

  // The next step, unless an event intervenes.
  enum class Phase { running, grace, terminating, killed, writing };

  struct Rank {
    RankProcess process;
    OutputStream out;
    OutputStream err;
    bool running = true;
  };

  void writeRest();
  void reportLoss();
  bool tooLate() const;
  void pollOnce() { pollOnce(deadline_); }
  void pollOnce(std::optional<Clock::time_point> until);
  void readSignals();
  void onUserSignal(int signal);
  void reapRanks();
  void onRankEnd(Rank& rank, int status);
  void onDeadline();
  void enter(Phase phase, std::chrono::milliseconds wait);
  void signalAll(int signal);
  bool anyRunning() const;
  bool anyOutputOpen() const;
  bool allWritten() const;
  Sink& errors() { return *sinks_.back(); }
  template <class... Args>
  void say(fmt::format_string<Args...> format, Args&&... args);

  Fd signals_;
  const Watcher& watcher_;
  SupervisorOptions options_;
  std::vector<std::unique_ptr<Sink>> sinks_;  // standard output and standard error; one sink if they are the same
  std::vector<Rank> ranks_;
  Phase phase_ = Phase::running;
  std::optional<Clock::time_point> jobEnd_;  // from the timeout
  std::optional<Clock::time_point> deadline_;
  std::optional<int> status_;  // decided by the first failure
  int userSignals_ = 0;
};

}  // namespace moe::tools
