#include "support/api/api_world.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <new>
#include <thread>

namespace moe::test {
namespace {

// Every piece is a block of its own, so that AddressSanitizer sees where it ends.
class HostArena final : public Arena {
 public:
  void upload(void* to, const void* from, std::size_t bytes) override {
    if (bytes > 0) std::memcpy(to, from, bytes);
  }
  void download(void* to, const void* from, std::size_t bytes) override { upload(to, from, bytes); }
  void synchronize() override {}
  moeStream_t stream() override { return nullptr; }

 private:
  struct Free {
    void operator()(std::uint8_t* block) const { std::free(block); }
  };

  std::uint8_t* allocate(std::size_t bytes) override {
    blocks_.emplace_back(static_cast<std::uint8_t*>(std::aligned_alloc(kAlignment, bytes)));
    if (blocks_.back() == nullptr) throw std::bad_alloc();
    return blocks_.back().get();
  }

  std::vector<std::unique_ptr<std::uint8_t, Free>> blocks_;
};

}  // namespace

void* Arena::take(std::size_t bytes) {
  std::uint8_t* piece = allocate(std::max<std::size_t>((bytes + kAlignment - 1) / kAlignment, 1) * kAlignment);
  const std::vector<std::uint8_t> fill(bytes, 0xA5);
  upload(piece, fill.data(), bytes);
  return piece;
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
