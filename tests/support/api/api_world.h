// Ranks as threads of this process, through the public C API, on either backend. A test body is written once for both.
// Without a GPU, the cuda instance is reported as skipped.
#pragma once

#include <gtest/gtest.h>

#include <barrier>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "moecomm.h"

namespace moe::test {

// Calls that were recorded instead of run.
class Graph {
 public:
  virtual ~Graph() = default;
  virtual void replay() = 0;  // in the arena's stream
};

// Memory for the backend's calls, freed with the arena. Each rank has one.
class Arena {
 public:
  virtual ~Arena() = default;
  virtual void upload(void* to, const void* from, std::size_t bytes) = 0;
  virtual void download(void* to, const void* from, std::size_t bytes) = 0;
  virtual void synchronize() = 0;
  virtual moeStream_t stream() = 0;
  // GPU: records what `calls` queues in the stream. NULL on the host.
  virtual std::unique_ptr<Graph> record(const std::function<void()>&) { return nullptr; }
  // GPU: bytes of memory that nobody has, by any process. 0 on the host.
  virtual std::size_t freeBytes() { return 0; }

  void* take(std::size_t bytes);  // aligned to 256 bytes, filled with 0xA5

  template <class T>
  T* put(std::span<const T> values) {
    auto* memory = static_cast<T*>(take(values.size_bytes()));
    upload(memory, values.data(), values.size_bytes());
    return memory;
  }
  template <class T>
  std::vector<T> get(const T* from, std::size_t count) {
    std::vector<T> values(count);
    synchronize();
    download(values.data(), from, count * sizeof(T));
    return values;
  }

 protected:
  static constexpr std::size_t kAlignment = 256;

  virtual std::uint8_t* allocate(std::size_t bytes) = 0;  // a multiple of kAlignment, aligned to it
};

std::unique_ptr<Arena> makeHostArena();
std::unique_ptr<Arena> makeCudaArena(int device);  // nullptr in builds without CUDA
int cudaDeviceCount();                             // 0 without CUDA or without a GPU

struct RankContext {
  int rank, nranks;
  moeComm_t comm;
  Arena& arena;
  std::barrier<>& barrier;
  std::vector<int> lost = {};  // ranks that the others go on without

  void meet() { barrier.arrive_and_wait(); }
  moeStream_t stream() { return arena.stream(); }
  const char* error() const { return moeGetLastError(comm); }
  int domainSize() const {
    moeCommInfo_t info = MOE_COMM_INFO_INITIALIZER;
    EXPECT_EQ(moeCommGetInfo(comm, &info), moeSuccess) << error();
    return info.domainSize;
  }
};

// A configuration with small buffers, so that many worlds fit.
moeConfig_t testConfig(int backend);

// Runs `body` on every rank of a new communicator. The ranks are `nranks` threads of this process, whose communicators
// `join` makes. Under moerun, this process is one rank of moerun's world instead. On GPUs, ranks are spread over the
// devices.
using Join = std::function<decltype(moeCommInit)>;
void world(int nranks, const moeConfig_t& config, const std::function<void(RankContext&)>& body,
           const Join& join = moeCommInit);

// The number of ranks that moerun has started, whatever number a test asks for. 0 if ranks are threads.
int startedRanks();

#define MOE_EXPECT_OK(call, context) EXPECT_EQ(call, moeSuccess) << (context).error()
#define MOE_ASSERT_OK(call, context) ASSERT_EQ(call, moeSuccess) << (context).error()

// Fixture: the parameter is a moeBackend value.
class OnBackend : public ::testing::TestWithParam<int> {
 protected:
  void SetUp() override {
    if (GetParam() == moeBackendCuda && cudaDeviceCount() == 0) GTEST_SKIP() << "no GPU here";
  }
  moeConfig_t config() const { return testConfig(GetParam()); }
};

inline std::string backendName(const ::testing::TestParamInfo<int>& info) {
  return info.param == moeBackendCuda ? "Cuda" : "Host";
}
#define MOE_INSTANTIATE_BACKENDS(Suite) \
  INSTANTIATE_TEST_SUITE_P(Backends, Suite, ::testing::Values(int{moeBackendHost}, int{moeBackendCuda}), backendName)

}  // namespace moe::test
