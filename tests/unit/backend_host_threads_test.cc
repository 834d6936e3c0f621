// The host backend's threads, and the memory that it allocates.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <barrier>
#include <csignal>
#include <fstream>
#include <string>

#include "backend/backend.h"
#include "backend/host_threads.h"
#include "support/base/sanitizers.h"
#include "transport/window.h"

namespace moe::test {
namespace {

TEST(HostThreads, RunsAllPartsAtOnceAndEachOnce) {
  HostThreads team;
  for (const int warps : {1, 4, 2, 3, 4}) {
    for (int round = 0; round < 50; ++round) {
      std::barrier<> all(warps);  // parts pass only when all of them run
      std::atomic<int> parts = 0;
      team.run(warps, [&](int warp, HostPace&) {
        all.arrive_and_wait();
        parts += 1 << 4 * warp;
      });
      EXPECT_EQ(parts, 0x1111 & ((1 << 4 * warps) - 1));
    }
  }
}

TEST(HostThreads, TakesNoSignalsOfTheProgram) {
  HostThreads team;
  std::atomic<int> open = 0;
  team.run(3, [&](int warp, HostPace&) {
    sigset_t blocked;
    ::pthread_sigmask(SIG_SETMASK, nullptr, &blocked);
    if (warp > 0 && (sigismember(&blocked, SIGTERM) == 0 || sigismember(&blocked, SIGCHLD) == 0)) ++open;
  });
  EXPECT_EQ(open, 0);
}

TEST(HostThreads, OfTheParentIsRefusedInAForkedChildAndLeftAlone) {
  if (MOE_TEST_TSAN) GTEST_SKIP() << "the thread sanitizer does not let a child of a process with threads go on";
  HostThreads* team = new HostThreads;
  team->run(3, [](int, HostPace&) {});
  const pid_t child = ::fork();
  if (child == 0) {
    ::alarm(30);
    std::string sentence;
    try {
      team->run(3, [](int, HostPace&) {});
    } catch (const Error& error) {
      sentence = error.what();
    }
    delete team;
    ::_exit(sentence == "the communicator belongs to the process that this one was forked from" ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
  delete team;
}

TEST(HostBackend, TakesThreadsByTheWorkThereIs) {
  const auto backend = makeHostBackend({HostSimd::automatic, 4});
  backend->setSharers(1000);
  const auto warps = [&](Workload work) { return backend->shapeFor(work).warps(); };
  EXPECT_EQ(backend->routeWarpsMax(), 4);
  EXPECT_EQ(warps({.step = Step::route, .tokensMax = 4096, .rows = 100, .rowBytes = 0, .sms = 0}), 1);
  EXPECT_EQ(warps({.step = Step::route, .tokensMax = 4096, .rows = 4096, .rowBytes = 0, .sms = 0}), 4);
  Workload dispatch{.step = Step::htDispatch, .tokensMax = 4096, .rows = 4096, .rowBytes = 4096, .sms = 0};
  EXPECT_EQ(warps(dispatch), 1);
  dispatch.bytes = 1200 << 10;
  EXPECT_EQ(warps(dispatch), 2);
  dispatch.bytes = 1 << 30;
  EXPECT_EQ(warps(dispatch), 4);
}

TEST(HostBackend, CutsFewRowsSoThatAllThreadsHaveSome) {
  const auto backend = makeHostBackend({HostSimd::automatic, 4});
  backend->setSharers(1);
  LaunchShape shape;
  for (const int blocks : {1, 3, 4}) {
    for (const int rows : {0, 1, 3, 7, 100}) {
      for (const std::uint32_t bytes : {16u, 1024u, 1040u, 14336u, 1048576u}) {
        shape.blocks = blocks;
        const Parts parts = backend->partsFor(shape, rows, bytes);
        EXPECT_GE(std::uint64_t{parts.bytes} * static_cast<unsigned>(parts.count), bytes);
        EXPECT_LT(std::uint64_t{parts.bytes} * static_cast<unsigned>(parts.count - 1), bytes);
        EXPECT_TRUE(parts.count == 1 || parts.bytes % 1024 == 0);
      }
    }
  }
  shape.blocks = 4;
  EXPECT_EQ(backend->partsFor(shape, 1, 1 << 20).count, 16);
}

// True if the kernel was told to use large pages for the memory at `at`.
bool wantsLargePages(const void* at) {
  std::ifstream maps("/proc/self/smaps");
  bool inside = false;
  for (std::string line; std::getline(maps, line);) {
    unsigned long begin = 0, end = 0;
    if (std::sscanf(line.c_str(), "%lx-%lx ", &begin, &end) == 2) {
      inside = begin <= reinterpret_cast<std::uintptr_t>(at) && reinterpret_cast<std::uintptr_t>(at) < end;
    }
    if (inside && line.rfind("VmFlags:", 0) == 0) return line.find(" hg") != std::string::npos;
  }
  return false;
}

TEST(HostBackend, AsksForLargePagesWhereThereIsRoomForOne) {
  if (!std::ifstream("/sys/kernel/mm/transparent_hugepage/enabled")) GTEST_SKIP() << "this kernel has none";
  const auto backend = makeHostBackend();
  const Memory large = backend->allocatePrivate(std::size_t{8} << 20, {}), small = backend->allocateHostVisible(4096);
  EXPECT_TRUE(wantsLargePages(large.get() + (1 << 20)));
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(large.get()) % (2 << 20), 0u);
  EXPECT_EQ(large.get()[(8 << 20) - 1], 0);
  const auto window = makeHostWindow(std::size_t{8} << 20, {});
  EXPECT_TRUE(wantsLargePages(window->base() + (1 << 20)));
}

}  // namespace
}  // namespace moe::test
