// GPU memory for tests.
#include <cuda_runtime_api.h>

#include <cstdlib>
#include <stdexcept>
#include <string>

#include "support/api/api_world.h"

namespace moe::test {
namespace {

void check(cudaError_t error, const char* what) {
  if (error != cudaSuccess) throw std::runtime_error(std::string(what) + ": " + cudaGetErrorString(error));
}

// This must be set before CUDA starts. Many ranks of one process share a GPU, and the streams of each need hardware
// queues of their own. Otherwise work would wait behind a kernel that waits for this work.
[[maybe_unused]] const int queuesOfAGpu = setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 0);

class CudaGraph final : public Graph {
 public:
  CudaGraph(cudaStream_t stream, const std::function<void()>& calls) : stream_(stream) {
    check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), "cudaStreamBeginCapture");
    calls();
    check(cudaStreamEndCapture(stream, &graph_), "cudaStreamEndCapture");
    check(cudaGraphInstantiate(&executable_, graph_, 0), "cudaGraphInstantiate");
  }
  ~CudaGraph() override {
    cudaGraphExecDestroy(executable_);
    cudaGraphDestroy(graph_);
  }
  void replay() override { check(cudaGraphLaunch(executable_, stream_), "cudaGraphLaunch"); }

 private:
  cudaStream_t stream_;
  cudaGraph_t graph_ = nullptr;
  cudaGraphExec_t executable_ = nullptr;
};

// One piece of memory, taken before any communication. Allocating GPU memory waits for the device, where a peer's
// kernel may be waiting for this very rank.
class CudaArena final : public Arena {
 public:
  explicit CudaArena(int device) {
    check(cudaSetDevice(device), "cudaSetDevice");
    check(cudaMalloc(reinterpret_cast<void**>(&base_), kBytes), "cudaMalloc");
    check(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "cudaStreamCreate");
  }
  ~CudaArena() override {
    cudaStreamDestroy(stream_);
    cudaFree(base_);
  }
  void upload(void* to, const void* from, std::size_t bytes) override {
    check(cudaMemcpyAsync(to, from, bytes, cudaMemcpyHostToDevice, stream_), "upload");
    check(cudaStreamSynchronize(stream_), "upload");
  }
  void download(void* to, const void* from, std::size_t bytes) override {
    check(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToHost, stream_), "download");
    check(cudaStreamSynchronize(stream_), "download");
  }
  void synchronize() override { check(cudaStreamSynchronize(stream_), "synchronize"); }
  moeStream_t stream() override { return stream_; }
  std::unique_ptr<Graph> record(const std::function<void()>& calls) override {
    return std::make_unique<CudaGraph>(stream_, calls);
  }
  std::size_t freeBytes() override {
    std::size_t free = 0, total = 0;
    check(cudaMemGetInfo(&free, &total), "cudaMemGetInfo");
    return free;
  }

 private:
  static constexpr std::size_t kBytes = std::size_t{96} << 20;

  std::uint8_t* allocate(std::size_t bytes) override {
    if (bytes > kBytes - used_) throw std::length_error("the test's arena is too small");
    used_ += bytes;
    return base_ + used_ - bytes;
  }

  std::uint8_t* base_ = nullptr;
  std::size_t used_ = 0;
  cudaStream_t stream_ = nullptr;
};

}  // namespace

std::unique_ptr<Arena> makeCudaArena(int device) {
  return std::make_unique<CudaArena>(device);
}

int cudaDeviceCount() {
  int count = 0;
  return cudaGetDeviceCount(&count) == cudaSuccess ? count : 0;
}

}  // namespace moe::test
