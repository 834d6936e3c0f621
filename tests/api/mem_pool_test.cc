// moeMemPoolUse, moeMemPoolAlloc and moeMemPoolFree: window memory for allocators that know no communicator.
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <string>
#include <thread>

#include "support/api/refusal_calls.h"

namespace moe::test {
namespace {

constexpr std::int64_t kHeap = 1 << 20;

class MemPool : public OnBackend {
 protected:
  moeConfig_t withHeap() const {
    moeConfig_t own = config();
    own.heapBytes = kHeap;
    return own;
  }
};

int deviceOf(moeComm_t comm) {
  moeCommInfo_t info = MOE_COMM_INFO_INITIALIZER;
  EXPECT_EQ(moeCommGetInfo(comm, &info), moeSuccess);
  return info.device;
}

// The reason why the latest moeMemPoolAlloc of this thread has returned NULL.
::testing::AssertionResult saysHere(const char* part) {
  return says(moeGetLastError(nullptr), part);
}

// Whether this many bytes of the heap are free in one block.
bool hasRoom(moeComm_t comm, std::int64_t bytes) {
  void* memory = nullptr;
  if (moeMemAlloc(comm, static_cast<std::size_t>(bytes), &memory) != moeSuccess) return false;
  return moeMemFree(comm, memory) == moeSuccess;
}

TEST_P(MemPool, TakesTheHeapOfWhoServesTheThread) {
  world(2, withHeap(), [](RankContext& context) {
    const int device = deviceOf(context.comm);
    MOE_ASSERT_OK(moeMemPoolUse(context.comm), context);
    void* first = moeMemPoolAlloc(kHeap / 2, device, nullptr);
    ASSERT_NE(first, nullptr) << moeGetLastError(nullptr);
    EXPECT_FALSE(hasRoom(context.comm, kHeap / 2 + 1));
    EXPECT_TRUE(hasRoom(context.comm, kHeap / 2)) << "another rank's heap, or both";
    context.arena.upload(first, "window memory", 14);
    context.meet();
    EXPECT_STREQ(context.arena.get(static_cast<const char*>(first), 14).data(), "window memory");
    moeMemPoolFree(first, kHeap / 2, device, nullptr);
    EXPECT_TRUE(hasRoom(context.comm, kHeap));
    moeMemPoolFree(first, kHeap / 2, device, nullptr);
    EXPECT_TRUE(saysHere("memory was not returned by moeMemPoolAlloc"));
    EXPECT_EQ(moeMemPoolAlloc(0, device, nullptr), nullptr);
    moeMemPoolFree(nullptr, 0, device, nullptr);
    EXPECT_EQ(moeMemPoolUse(nullptr), moeSuccess);
  });
}

// Without a staging area, only window memory can take rows of an HT dispatch.
TEST_P(MemPool, TakesRowsOfADispatch) {
  moeConfig_t own = withHeap();
  own.stagingRows = -1;
  world(2, own, [](RankContext& context) {
    Calls calls(context, handleOf(moeModeHt, moeLayoutFlat));
    context.meet();
    MOE_ASSERT_OK(calls.route(), context);
    DispatchFields args = calls.dispatchArgs();
    EXPECT_EQ(calls.dispatch(args), moeInvalidArgument);
    EXPECT_TRUE(says(context.error(), "staging area"));
    MOE_ASSERT_OK(moeMemPoolUse(context.comm), context);
    args.outRows = moeMemPoolAlloc(kRowsMax * kRowBytes, deviceOf(context.comm), nullptr);
    MOE_EXPECT_OK(calls.dispatch(args), context);
    const int rows = 2 * kTokens;  // each rank's tokens go to both ranks
    for (float value : context.arena.get(static_cast<const float*>(args.outRows), rows * kHidden))
      ASSERT_EQ(value, 1.0f);
    context.meet();
    moeMemPoolFree(args.outRows, 0, deviceOf(context.comm), nullptr);
  });
}

TEST_P(MemPool, SaysWhyThereIsNoMemory) {
  world(1, withHeap(), [](RankContext& context) {
    const int device = deviceOf(context.comm);
    EXPECT_EQ(moeMemPoolAlloc(64, device, nullptr), nullptr);
    EXPECT_TRUE(saysHere("moeMemPoolAlloc: no communicator serves this thread"));
    MOE_ASSERT_OK(moeMemPoolUse(context.comm), context);
    EXPECT_EQ(moeMemPoolAlloc(kHeap + 1, device, nullptr), nullptr);
    EXPECT_TRUE(
        saysHere("moeMemPoolAlloc: bytes is 1048577, but the largest free block of the window's heap is 1048576"));
    EXPECT_EQ(moeMemPoolAlloc(-1, device, nullptr), nullptr);
    EXPECT_TRUE(saysHere("moeMemPoolAlloc: bytes is -1"));
    if (device >= 0) {
      EXPECT_EQ(moeMemPoolAlloc(64, device + 1, nullptr), nullptr);
      EXPECT_TRUE(saysHere("but the communicator that serves this thread has its memory on device"));
    }
    std::thread([&] { EXPECT_EQ(moeMemPoolAlloc(64, device, nullptr), nullptr) << "another thread"; }).join();
    int foreign = 0;
    EXPECT_EQ(moeMemPoolUse(reinterpret_cast<moeComm_t>(&foreign)), moeInvalidArgument);
    EXPECT_EQ(moeMemPoolAlloc(64, device, nullptr), nullptr) << "nobody serves after a failure";
    MOE_ASSERT_OK(moeMemPoolUse(context.comm), context);
    EXPECT_EQ(moeCommAbort(context.comm), moeSuccess);
    EXPECT_EQ(moeMemPoolUse(context.comm), moeAborted);
    EXPECT_EQ(moeMemPoolAlloc(64, device, nullptr), nullptr);
  });
}

TEST(MemPoolOnHost, RefusesWindowsOfTheCallersAllocator) {
  moeConfig_t own = testConfig(moeBackendHost);
  own.heapBytes = kHeap;
  own.allocate = [](void*, std::size_t bytes, std::int32_t) {
    return std::aligned_alloc(256, (bytes + 255) / 256 * 256);
  };
  own.free = [](void*, void* memory, std::size_t, std::int32_t) { std::free(memory); };
  world(1, own, [](RankContext& context) {
    EXPECT_EQ(moeMemPoolUse(context.comm), moeInvalidUsage);
    EXPECT_TRUE(says(context.error(), "config.allocate"));
  });
}

// How many mappings of windows this process has.
int windowsHere() {
  std::ifstream maps("/proc/self/maps");
  int found = 0;
  for (std::string line; std::getline(maps, line);) found += line.find("moecomm-window") != std::string::npos;
  return found;
}

TEST_P(MemPool, OutlivesItsCommunicator) {
  const int before = windowsHere();
  moeUniqueId_t id;
  ASSERT_EQ(moeGetUniqueId(&id), moeSuccess);
  const moeConfig_t own = withHeap();
  moeComm_t comm = nullptr;
  ASSERT_EQ(moeCommInit(&comm, 1, 0, &id, &own), moeSuccess) << moeGetLastError(nullptr);
  const int device = deviceOf(comm);
  ASSERT_EQ(moeMemPoolUse(comm), moeSuccess);
  void* blocks[] = {moeMemPoolAlloc(4096, device, nullptr), moeMemPoolAlloc(4096, device, nullptr)};
  const auto arena = GetParam() == moeBackendCuda ? makeCudaArena(device) : makeHostArena();
  arena->upload(blocks[1], "still here", 11);
  ASSERT_EQ(moeCommDestroy(comm), moeSuccess);
  EXPECT_STREQ(arena->get(static_cast<const char*>(blocks[1]), 11).data(), "still here");
  EXPECT_EQ(moeMemPoolAlloc(64, device, nullptr), nullptr);
  EXPECT_TRUE(saysHere("the communicator that served this thread has been destroyed"));
  const int kept = before + (GetParam() == moeBackendHost ? 1 : 0);  // windows of GPUs are not in that list
  EXPECT_EQ(windowsHere(), kept);
  moeMemPoolFree(blocks[0], 4096, device, nullptr);
  EXPECT_EQ(windowsHere(), kept);
  std::thread([&] { moeMemPoolFree(blocks[1], 4096, device, nullptr); }).join();
  EXPECT_EQ(windowsHere(), before);
}

TEST_P(MemPool, FreesBesideOtherCalls) {
  world(2, withHeap(), [](RankContext& context) {
    const int device = deviceOf(context.comm);
    std::atomic<bool> over = false;
    std::thread framework([&] {
      EXPECT_EQ(moeMemPoolUse(context.comm), moeSuccess);
      for (int i = 0; !over; ++i) {
        void* memory = moeMemPoolAlloc(1000 + i % 7000, device, nullptr);
        if (memory != nullptr) moeMemPoolFree(memory, 0, device, nullptr);
      }
    });
    for (int i = 0; i < 200; ++i) EXPECT_TRUE(hasRoom(context.comm, 1000 + i));
    over = true;
    framework.join();
    EXPECT_TRUE(hasRoom(context.comm, kHeap));
  });
}

// The lock of the process's table may be held at the time of a fork.
TEST(MemPoolOnHost, AForkedProcessNeitherTakesNorFrees) {
  moeConfig_t own = testConfig(moeBackendHost);
  own.heapBytes = kHeap;
  world(1, own, [](RankContext& context) {
    MOE_ASSERT_OK(moeMemPoolUse(context.comm), context);
    void* memory = moeMemPoolAlloc(kHeap, -1, nullptr);
    ASSERT_NE(memory, nullptr);
    const pid_t child = ::fork();
    if (child == 0) {
      moeMemPoolFree(memory, kHeap, -1, nullptr);
      const bool refused = std::strstr(moeGetLastError(nullptr), "moeMemPoolFree: ") != nullptr;
      ::_exit(refused && moeMemPoolAlloc(64, -1, nullptr) == nullptr ? 0 : 1);
    }
    int status = -1;
    EXPECT_EQ(::waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
    EXPECT_FALSE(hasRoom(context.comm, 1));
    moeMemPoolFree(memory, kHeap, -1, nullptr);
    EXPECT_TRUE(hasRoom(context.comm, kHeap));
  });
}

MOE_INSTANTIATE_BACKENDS(MemPool);

}  // namespace
}  // namespace moe::test
