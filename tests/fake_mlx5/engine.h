// Runs the software adapter of a process on its own thread, from the first device opened to the last one closed. The
// program's threads get in between its steps. The environment controls it:
//
//   FAKE_MLX5_DIR     an empty folder that the processes share; without it, the adapter executes nothing
//   FAKE_MLX5_FAULTS  mishaps (fault_plan.h)
//   FAKE_MLX5_REPORT  file for mistakes of posters, and for objects that they did not free
//   FAKE_MLX5_COUNTS  file that gets Adapter::counts() at the end of each adapter, one line each
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <thread>

#include "fake_mlx5/adapter.h"

namespace moe::test {

class Engine {
 public:
  static Engine& instance();  // the instance of this process; the child of a fork has its own
  static void shutDown();     // at program exit

  int open(int context, unsigned device);  // returns 0 or an errno value
  void close(int context);
  unsigned deviceOf(int context);  // the device of an open context

  // Calls act(adapter) while the adapter stands still. Does nothing if no device is open.
  template <class Act>
  void with(Act act) {
    ++visitors_;
    const std::lock_guard lock(mutex_);
    --visitors_;
    if (adapter_ != nullptr) act(*adapter_);
  }

  // Since the start of the process, including adapters that are closed.
  std::uint64_t violations();
  std::uint64_t count(const char* name);  // one of Adapter::counts()

 private:
  Engine();
  static void beforeFork();
  static void afterFork();  // in the parent and in the child
  void start();
  void stop();
  void closeAll();
  void run();
  void keepCounts();
  void writeCounts() const;
  void forget();

  int process_;  // the process that made this instance
  std::mutex mutex_;
  std::atomic<int> visitors_{0};
  std::atomic<bool> stop_{false}, hasBegun_{false};
  std::unique_ptr<Adapter> adapter_;
  std::thread thread_;
  std::map<int, unsigned> devices_;  // device of each open context
  std::uint64_t pastViolations_ = 0;
  std::map<std::string, std::uint64_t> pastCounts_;
};

}  // namespace moe::test
