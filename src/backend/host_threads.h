// Threads that run a rank's steps together with the calling thread. They sleep between steps, take no signals of the
// program, and end with this object.
#pragma once

#include <sys/types.h>

#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "device/policy/host/pace.h"

namespace moe {

class HostThreads {
 public:
  using Part = std::function<void(int warp, HostPace& pace)>;

  HostThreads() = default;
  ~HostThreads() { end(); }
  HostThreads(const HostThreads&) = delete;
  HostThreads& operator=(const HostThreads&) = delete;

  // Runs part(0) on the calling thread and part(1) to part(warps - 1) on other threads, all at once. Threads start when
  // they are first needed. Throws an Error if one cannot be started, and then no part has run.
  void run(int warps, const Part& part);

  // Ends the threads. The next run() starts others.
  void end() noexcept;

  // The experience of the calling thread with waits.
  HostPace& pace() { return pace_; }

 private:
  struct Member {
    std::condition_variable called;
    bool busy = false;
    HostPace pace;
    std::thread thread;
  };

  bool ofAnotherProcess() const;
  void need(int members);
  void serve(Member& member, int warp);

  std::mutex mutex_;
  std::condition_variable done_;
  const Part* part_ = nullptr;
  int left_ = 0;
  bool over_ = false;
  pid_t process_ = 0;  // the process whose threads the members are
  HostPace pace_;
  std::vector<std::unique_ptr<Member>> members_;
};

}  // namespace moe
