// moeCommGetMemorySize says what the caller's allocator is asked for.
#include <algorithm>
#include <array>
#include <atomic>
#include <cstdlib>
#include <thread>
#include <vector>

#include "support/api/api_world.h"
#include "support/base/variable.h"

namespace moe::test {
namespace {

constexpr std::uint64_t kTables = 40 << 10;  // at most, of a thread: kLlTableBytesMax
constexpr std::uint64_t kThreads = 2;

// The memory that an allocator has given to a rank. The last rank that uses a window gives it back, on its own thread.
struct TakenBytes {
  static void* take(void* user, std::size_t bytes, std::int32_t kind) {
    static_cast<TakenBytes*>(user)->bytes.at(static_cast<std::size_t>(kind)) += bytes;
    return std::aligned_alloc(256, (bytes + 255) / 256 * 256);
  }
  static void giveBack(void* user, void* memory, std::size_t bytes, std::int32_t kind) {
    static_cast<TakenBytes*>(user)->bytes.at(static_cast<std::size_t>(kind)) -= bytes;
    std::free(memory);
  }
  std::array<std::atomic<std::uint64_t>, 2> bytes{};  // in use, of each kind
};

std::vector<moeHandleConfig_t> handlesOf(const moeConfig_t& comm, std::int32_t mode, int nranks) {
  const int most = mode == moeModeLl ? comm.llTokensMax : comm.tokensMax;
  std::vector<moeHandleConfig_t> all;
  for (const int layout : {moeLayoutFlat, moeLayoutExpertMajor, moeLayoutExpertMajorPadded, moeLayoutRankMajor}) {
    for (const int tokens : {0, 8}) {
      for (const bool counted : {false, true}) {
        moeHandleConfig_t config = MOE_HANDLE_CONFIG_INITIALIZER;
        config.experts = comm.expertsMax;
        config.topk = comm.topkMax;
        config.layout = layout;
        config.mode = mode;
        config.tokensMax = tokens;
        config.arrivals = layout == moeLayoutExpertMajor || layout == moeLayoutExpertMajorPadded ? 1 : 0;
        config.statistics = 1;
        config.expertCounts = counted ? 1 : 0;
        config.rowsBudget = counted ? nranks * (tokens > 0 ? tokens : most) : 0;
        all.push_back(config);
      }
    }
  }
  return all;
}

// The most bytes that a handle takes.
std::uint64_t mostOf(moeComm_t comm, const moeConfig_t& config, std::int32_t mode, int nranks,
                     const TakenBytes& taken) {
  std::uint64_t most = 0;
  for (const moeHandleConfig_t& shape : handlesOf(config, mode, nranks)) {
    const std::uint64_t before = taken.bytes.at(moeMemoryPrivate);
    moeHandle_t handle = nullptr;
    EXPECT_EQ(moeHandleCreate(&handle, comm, &shape), moeSuccess) << moeGetLastError(comm);
    most = std::max(most, taken.bytes.at(moeMemoryPrivate) - before);
    EXPECT_EQ(moeHandleDestroy(handle), moeSuccess);
  }
  return most;
}

void checkLocalOnly(moeComm_t comm, const moeConfig_t& config, const TakenBytes& taken, const moeMemorySize_t& size) {
  moeHandleConfig_t shape = handlesOf(config, moeModeAuto, 1).front();
  shape.localOnly = 1;
  const std::uint64_t before = taken.bytes.at(moeMemoryPrivate);
  moeHandle_t handle = nullptr;
  ASSERT_EQ(moeHandleCreate(&handle, comm, &shape), moeSuccess) << moeGetLastError(comm);
  ASSERT_EQ(moeHandleDestroy(handle), moeSuccess);
  EXPECT_EQ(taken.bytes.at(moeMemoryPrivate) - before, size.localOnlyBytes);
}

void checkRank(int nranks, int rank, const moeUniqueId_t& id, moeConfig_t config, TakenBytes& taken) {
  config.allocate = TakenBytes::take;
  config.free = TakenBytes::giveBack;
  config.allocateUser = &taken;
  moeMemorySize_t size = MOE_MEMORY_SIZE_INITIALIZER;
  ASSERT_EQ(moeCommGetMemorySize(nranks, &config, &size), moeSuccess) << moeGetLastError(nullptr);
  moeComm_t comm = nullptr;
  ASSERT_EQ(moeCommInit(&comm, nranks, rank, &id, &config), moeSuccess) << moeGetLastError(nullptr);
  EXPECT_EQ(taken.bytes[moeMemoryWindow], size.windowBytes);
  EXPECT_EQ(taken.bytes[moeMemoryPrivate], size.privateBytes);
  std::uint64_t most = 0;
  for (const int mode : {moeModeHt, moeModeLl}) {
    if (config.modes == moeModeAuto || config.modes == mode)
      most = std::max(most, mostOf(comm, config, mode, nranks, taken));
  }
  EXPECT_LE(most, size.handleBytes);
  const std::uint64_t slack = config.modes == moeModeHt ? 0 : kThreads * kTables;  // tables that no handle has in full
  if (rank == 0) {
    EXPECT_GE(most + slack, size.handleBytes);
  }
  checkLocalOnly(comm, config, taken, size);
  EXPECT_EQ(moeCommDestroy(comm), moeSuccess);
}

TEST(MemorySize, IsWhatACommunicatorAndItsHandlesTake) {
  const Variable threads("MOECOMM_HOST_THREADS", std::to_string(kThreads).c_str());
  for (const int nranks : {1, 3}) {
    for (const int modes : {moeModeAuto, moeModeHt, moeModeLl}) {
      SCOPED_TRACE(testing::Message() << nranks << " ranks, modes " << modes);
      moeConfig_t config = testConfig(moeBackendHost);
      config.modes = modes;
      moeUniqueId_t id;
      ASSERT_EQ(moeGetUniqueId(&id), moeSuccess) << moeGetLastError(nullptr);
      std::vector<TakenBytes> taken(static_cast<std::size_t>(nranks));
      std::vector<std::thread> ranks;
      for (int rank = 0; rank < nranks; ++rank) {
        ranks.emplace_back([&, rank] { checkRank(nranks, rank, id, config, taken[static_cast<std::size_t>(rank)]); });
      }
      for (std::thread& rank : ranks) rank.join();
      for (const TakenBytes& rank : taken) EXPECT_EQ(rank.bytes[0] + rank.bytes[1], 0u);
    }
  }
}

// The recorder can be left out, and its copies are in host memory only with a GPU.
TEST(MemorySize, FollowsTheRecorderAndTheBackend) {
  const auto sizeOf = [](std::int32_t backend) {
    const moeConfig_t config = testConfig(backend);
    moeMemorySize_t size = MOE_MEMORY_SIZE_INITIALIZER;
    EXPECT_EQ(moeCommGetMemorySize(8, &config, &size), moeSuccess) << moeGetLastError(nullptr);
    return size;
  };
  const moeMemorySize_t host = sizeOf(moeBackendHost), cuda = sizeOf(moeBackendCuda), either = sizeOf(moeBackendAuto);
  EXPECT_EQ(cuda.privateBytes, host.privateBytes);
  EXPECT_GT(cuda.hostBytes, host.hostBytes + (60 << 10));
  EXPECT_EQ(either.hostBytes, cuda.hostBytes);
  EXPECT_EQ(either.handleBytes, std::max(host.handleBytes, cuda.handleBytes));
  const Variable recorder("MOECOMM_RECORDER", "off");
  EXPECT_LT(sizeOf(moeBackendCuda).privateBytes, cuda.privateBytes - (60 << 10));
  EXPECT_EQ(sizeOf(moeBackendCuda).hostBytes, host.hostBytes);
}

// An older program has a struct without the newer fields.
TEST(MemorySize, LeavesWhatAnOlderStructDoesNotHave) {
  const moeConfig_t config = testConfig(moeBackendHost);
  moeMemorySize_t size = MOE_MEMORY_SIZE_INITIALIZER;
  size.size = offsetof(moeMemorySize_t, privateBytes);
  size.privateBytes = 77;
  ASSERT_EQ(moeCommGetMemorySize(8, &config, &size), moeSuccess) << moeGetLastError(nullptr);
  EXPECT_GT(size.windowBytes, 0u);
  EXPECT_EQ(size.privateBytes, 77u);
}

}  // namespace
}  // namespace moe::test
