// The Device of the host backend: plain memory, the calling thread, the steady clock. Also the answers about GPUs in
// builds without CUDA.
#include <stdlib.h>

#include <chrono>
#include <cstring>
#include <stdexcept>
#include <vector>

#include "perf/payload/device.h"

namespace moe::perf {
namespace {

class HostDevice : public Device {
 public:
  std::string name() const override { return "host"; }
  moeStream_t stream() const override { return nullptr; }

  void* allocate(std::size_t bytes) override {
    void* memory = nullptr;
    if (::posix_memalign(&memory, 256, bytes) != 0) {
      throw std::runtime_error("out of host memory, asked for " + std::to_string(bytes) + " bytes");
    }
    std::memset(memory, 0, bytes);
    return memory;
  }
  void free(void* memory) override { ::free(memory); }

  void upload(void* to, const void* from, std::size_t bytes) override { std::memcpy(to, from, bytes); }
  void download(void* to, const void* from, std::size_t bytes) override { std::memcpy(to, from, bytes); }
  void clear(void* memory, std::size_t bytes) override { std::memset(memory, 0, bytes); }

  void run(const Work& work) override {
    std::visit(
        [](const auto& job) {
          const std::int64_t rowCount = job.rowCount();
          for (std::int64_t row = 0; row < rowCount; ++row) job(row, 0, 1);
        },
        work);
  }

  void reserveMarks(int count) override { marks_.resize(static_cast<std::size_t>(count)); }
  void mark(int index) override { marks_.at(static_cast<std::size_t>(index)) = Clock::now(); }
  double microsecondsBetween(int first, int second) override {
    const auto time = marks_.at(static_cast<std::size_t>(second)) - marks_.at(static_cast<std::size_t>(first));
    return std::chrono::duration<double, std::micro>(time).count();
  }

  void wait() override {}

  bool hasGraphs() const override { return false; }
  int capture(const std::function<void()>&) override { throw std::runtime_error("the host backend has no graphs"); }
  void launch(int) override { throw std::runtime_error("the host backend has no graphs"); }
  void dropGraphs() override {}
  int blocksOf(const std::function<void()>&) override { return 0; }

 private:
  using Clock = std::chrono::steady_clock;
  std::vector<Clock::time_point> marks_;
};

}  // namespace

std::unique_ptr<Device> makeHostDevice() {
  return std::make_unique<HostDevice>();
}

#if !MOECOMM_WITH_CUDA
int gpuCount() {
  return 0;
}
std::unique_ptr<Device> makeGpuDevice(int) {
  throw std::runtime_error("moe_perf was built without CUDA");
}
#endif

}  // namespace moe::perf
