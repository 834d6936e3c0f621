// Shared by the tests of the bootstrap: ranks as threads of this process, and ranks as child processes.
#pragma once

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <filesystem>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "base/error.h"
#include "bootstrap/group/bootstrap.h"
#include "bootstrap/group/unique_id.h"
#include "bootstrap/net/socket.h"

namespace moe::test {

using namespace std::chrono_literals;
using bootstrap::Bootstrap;
using Clock = std::chrono::steady_clock;

inline bootstrap::Options optionsOf(int rank, int nranks, std::chrono::milliseconds timeout = 20s) {
  bootstrap::Options options;
  options.rank = rank;
  options.nranks = nranks;
  options.timeout = timeout;
  return options;
}

inline std::uint16_t freePort() {
  return bootstrap::listenTcp({bootstrap::Address::any(AF_INET, 0)}, 0).port;
}

inline double secondsSince(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// How one rank's part ended.
struct Outcome {
  moeResult_t result = moeSuccess;
  std::string sentence;
};

inline Outcome outcomeOf(const std::function<void()>& body) {
  try {
    body();
    return {};
  } catch (const Error& error) {
    return {error.result(), error.what()};
  } catch (const std::exception& error) {
    return {moeInternalError, error.what()};
  }
}

// Runs body(i) for each i < count in a thread of its own.
inline std::vector<Outcome> inThreads(int count, const std::function<void(int)>& body) {
  std::vector<Outcome> outcomes(static_cast<std::size_t>(count));
  std::vector<std::thread> threads;
  for (int i = 0; i < count; ++i) {
    threads.emplace_back([&, i] { outcomes[static_cast<std::size_t>(i)] = outcomeOf([&] { body(i); }); });
  }
  for (auto& thread : threads) thread.join();
  return outcomes;
}

// Runs `body` in a group of `nranks` threads that have joined.
inline std::vector<Outcome> world(int nranks, const std::function<void(Bootstrap&)>& body) {
  const moeUniqueId_t id = bootstrap::createUniqueId(20s, "");
  return inThreads(nranks, [&](int rank) {
    auto member = Bootstrap::join(id, optionsOf(rank, nranks));
    body(*member);
  });
}

inline void expectAllWell(const std::vector<Outcome>& outcomes) {
  for (const Outcome& outcome : outcomes) EXPECT_EQ(outcome.result, moeSuccess) << outcome.sentence;
}

// The reports of one rank's monitor, and a way to wait for them.
class Reports {
 public:
  void add(const bootstrap::Failure& failure) {
    const std::lock_guard lock(mutex_);
    failures_.push_back(failure);
    changed_.notify_all();
  }
  bool waitForOne(std::chrono::milliseconds patience) {
    std::unique_lock lock(mutex_);
    return changed_.wait_until(lock, std::chrono::system_clock::now() + patience, [&] { return !failures_.empty(); });
  }
  bool waitFor(const std::string& sentence, std::chrono::milliseconds patience) {
    const auto came = [&] {
      return std::any_of(failures_.begin(), failures_.end(), [&](const auto& f) { return f.sentence == sentence; });
    };
    std::unique_lock lock(mutex_);
    return changed_.wait_until(lock, std::chrono::system_clock::now() + patience, came);
  }
  std::vector<bootstrap::Failure> all() {
    const std::lock_guard lock(mutex_);
    return failures_;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<bootstrap::Failure> failures_;
};

using Ranks = std::vector<int>;

inline bool isAmong(const Ranks& ranks, int rank) {
  return std::find(ranks.begin(), ranks.end(), rank) != ranks.end();
}

// An all-gather in which every rank but the lost ones has its own byte.
inline void meetOthers(Bootstrap& member, int turn) {
  const std::uint8_t mine = static_cast<std::uint8_t>(member.rank() + turn);
  const auto all = member.allGather({&mine, 1}, "the test");
  for (int rank = 0; rank < member.nranks(); ++rank) {
    const auto& blob = all.at(static_cast<std::size_t>(rank));
    if (member.isLost(rank)) {
      EXPECT_TRUE(blob.empty()) << rank;
    } else {
      ASSERT_EQ(blob.size(), 1U) << rank;
      EXPECT_EQ(blob[0], static_cast<std::uint8_t>(rank + turn));
    }
  }
}

// A meeting of threads inside a test, not of ranks.
class Meet {
 public:
  explicit Meet(int count) : count_(count) {}
  void wait() {
    std::unique_lock lock(mutex_);
    if (++here_ >= count_) met_.notify_all();
    met_.wait(lock, [&] { return here_ >= count_; });
  }

 private:
  int count_;
  int here_ = 0;
  std::mutex mutex_;
  std::condition_variable met_;
};

// Child processes, forked while this process has one thread. When the test has made the group's id, each child gets it
// through a pipe and runs body(index, id, say). It ends with status 0, or with 1 if body threw. say() tells the parent
// that the child has reached a point, for which the parent waits with awaitWord.
class Children {
 public:
  using Body = std::function<void(int index, const moeUniqueId_t& id, const std::function<void()>& say)>;

  Children(int count, const Body& body) {
    for (int i = 0; i < count; ++i) spawn(i, body);
  }
  ~Children() {
    for (std::size_t i = 0; i < children_.size(); ++i) {
      kill(static_cast<int>(i));
      status(static_cast<int>(i));
      ::close(children_[i].toChild);
      ::close(children_[i].fromChild);
    }
  }

  void start(const moeUniqueId_t& id) {
    for (const Child& child : children_) {
      EXPECT_EQ(::write(child.toChild, &id, sizeof(id)), static_cast<ssize_t>(sizeof(id)));
    }
  }
  void awaitWord(int index) {
    char word = 0;
    EXPECT_EQ(::read(at(index).fromChild, &word, 1), 1);
  }
  void kill(int index) {
    if (at(index).pid > 0) ::kill(at(index).pid, SIGKILL);
  }
  // Stops a child. Returns when all its threads are stopped.
  void stop(int index) {
    int status = 0;
    EXPECT_EQ(::kill(at(index).pid, SIGSTOP), 0);
    EXPECT_EQ(::waitpid(at(index).pid, &status, WUNTRACED), at(index).pid);
    EXPECT_TRUE(WIFSTOPPED(status));
  }
  // Waits for a child's end. Returns its exit status, or minus the signal that killed it.
  int status(int index) {
    Child& child = at(index);
    if (child.pid <= 0) return child.status;
    int status = 0;
    ::waitpid(child.pid, &status, 0);
    child.pid = 0;
    return child.status = WIFSIGNALED(status) ? -WTERMSIG(status) : WEXITSTATUS(status);
  }

 private:
  struct Child {
    pid_t pid = 0;
    int toChild = -1;
    int fromChild = -1;
    int status = 0;
  };
  Child& at(int index) { return children_.at(static_cast<std::size_t>(index)); }

  void spawn(int index, const Body& body) {
    int down[2];
    int up[2];
    ASSERT_EQ(::pipe(down), 0);
    ASSERT_EQ(::pipe(up), 0);
    const pid_t pid = ::fork();
    if (pid == 0) {
      ::close(down[1]);
      ::close(up[0]);
      moeUniqueId_t id{};
      if (::read(down[0], &id, sizeof(id)) != static_cast<ssize_t>(sizeof(id))) ::_exit(2);
      const Outcome outcome = outcomeOf([&] { body(index, id, [&] { (void)!::write(up[1], "x", 1); }); });
      if (outcome.result != moeSuccess) (void)!::write(2, outcome.sentence.data(), outcome.sentence.size());
      ::_exit(outcome.result == moeSuccess ? 0 : 1);
    }
    ::close(down[0]);
    ::close(up[1]);
    children_.push_back({pid, down[1], up[0], 0});
  }

  std::vector<Child> children_;
};

inline std::size_t openDescriptors() {
  std::size_t count = 0;
  for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) ++count;
  return count;
}

inline void allowManyDescriptors() {
  rlimit limit{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &limit), 0);
  limit.rlim_cur = limit.rlim_max;
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &limit), 0);
}

}  // namespace moe::test
