// Runs the software adapter of a process on its own thread, from the first device that is opened to the last that is
// closed, and lets the program's threads in between its steps. The environment controls it:
//
//   FAKE_MLX5_DIR     an empty folder that the processes share; without it, nothing that is posted is executed
//   FAKE_MLX5_FAULTS  mishaps (fault_plan.h)
//   FAKE_MLX5_REPORT  file for what posters did wrong, and for what they did not give back
//   FAKE_MLX5_COUNTS  file for what Adapter::counts() says at the end of an adapter, a line each
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <thread>

#include "fake_mlx5/adapter.h"

namespace moe::test {

class Engine {
 public:
  static Engine& instance();  // of this process: the child of a fork gets its own
  static void shutDown();     // at the end of the program

  int open(int context, unsigned device);  // 0, or what errno becomes
  void close(int context);
  unsigned deviceOf(int context);  // of an open one

  // Calls act(adapter) while the adapter stands still. Nothing happens if no device is open.
  template <class Act>
  void with(Act act) {
    ++visitors_;
    const std::lock_guard lock(mutex_);
    --visitors_;
    if (adapter_ != nullptr) act(*adapter_);
  }

  // Since the beginning of the process, also of adapters that are closed.
  std::uint64_t violations();
  std::uint64_t count(const char* name);  // of Adapter::counts()

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

  int process_;  // that made this
  std::mutex mutex_;
  std::atomic<int> visitors_{0};
  std::atomic<bool> stop_{false}, hasBegun_{false};
  std::unique_ptr<Adapter> adapter_;
  std::thread thread_;
  std::map<int, unsigned> devices_;  // of open contexts
  std::uint64_t pastViolations_ = 0;
  std::map<std::string, std::uint64_t> pastCounts_;
};

}  // namespace moe::test
