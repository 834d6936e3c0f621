#include "support/api_world.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <new>
#include <stdexcept>
#include <thread>

namespace moe::test {
namespace {

class HostArena final : public Arena {
 public:
  HostArena() {
    base_ = static_cast<std::uint8_t*>(std::aligned_alloc(256, kBytes));
    if (base_ == nullptr) throw std::bad_alloc();
  }
  ~HostArena() override { std::free(base_); }
  void upload(void* to, const void* from, std::size_t bytes) override {
    if (bytes > 0) std::memcpy(to, from, bytes);
  }
  void download(void* to, const void* from, std::size_t bytes) override { upload(to, from, bytes); }
  void synchronize() override {}
  moeStream_t stream() override { return nullptr; }
};

}  // namespace

void* Arena::take(std::size_t bytes) {
  const std::size_t at = used_;
  used_ += (bytes + 255) / 256 * 256;
  if (used_ > kBytes) throw std::length_error("the test's arena is too small");
  const std::vector<std::uint8_t> fill(bytes, 0xA5);
  upload(base_ + at, fill.data(), bytes);
  return base_ + at;
}

std::unique_ptr<Arena> makeHostArena() {
  return std::make_unique<HostArena>();
}

moeConfig_t testConfig(int backend) {
  moeConfig_t config = MOE_CONFIG_INITIALIZER;
  config.backend = backend;
  config.tokensMax = 64;
  config.llTokensMax = 16;
  config.rowBytesMax = 2048;
  config.sideBytesMax = 64;
  config.topkMax = 8;
  config.expertsMax = 64;
  config.heapBytes = 4 << 20;
  config.timeoutMs = 20000;
  config.sms = 4;  // several ranks may share a GPU
  return config;
}

namespace {

// Runs one rank of a world. `join` makes its communicator.
template <class Join>
void runRank(int nranks, int rank, moeConfig_t config, std::barrier<>& barrier,
             const std::function<void(RankContext&)>& body, Join join) {
  const bool cuda = config.backend == moeBackendCuda;
  if (cuda) config.device = rank % cudaDeviceCount();
  const auto arena = cuda ? makeCudaArena(config.device) : makeHostArena();
  moeComm_t comm = nullptr;
  const moeResult_t result = join(&comm, config);
  EXPECT_EQ(result, moeSuccess) << moeGetLastError(nullptr);
  barrier.arrive_and_wait();
  if (result == moeSuccess) {
    RankContext context{rank, nranks, comm, *arena, barrier};
    body(context);
    arena->synchronize();
  }
  barrier.arrive_and_wait();
  EXPECT_EQ(moeCommDestroy(comm), moeSuccess);
}

int environmentNumber(const char* name) {
  const char* text = std::getenv(name);
  return text != nullptr ? std::atoi(text) : -1;
}

}  // namespace

int startedRanks() {
  return std::max(environmentNumber("MOECOMM_NRANKS"), 0);
}

void world(int nranks, const moeConfig_t& config, const std::function<void(RankContext&)>& body, const Join& join) {
  if (startedRanks() > 0) {  // this process is one rank of a world of moerun's
    std::barrier alone(1);
    runRank(startedRanks(), environmentNumber("MOECOMM_RANK"), config, alone, body,
            [](moeComm_t* comm, const moeConfig_t& own) { return moeCommInitFromEnv(comm, &own); });
    return;
  }
  moeUniqueId_t id;
  ASSERT_EQ(moeGetUniqueId(&id), moeSuccess) << moeGetLastError(nullptr);
  std::barrier barrier(nranks);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < nranks; ++rank) {
    threads.emplace_back([&, rank] {
      runRank(nranks, rank, config, barrier, body,
              [&](moeComm_t* comm, const moeConfig_t& own) { return join(comm, nranks, rank, &id, &own); });
    });
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace moe::test
