// The host backend: every step runs to its end on the calling thread, one warp of one lane.
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <new>

#include "backend/backend.h"
#include "device/host_steps.h"
#include "device/host_wait.h"

namespace moe {
namespace {

class HostReader final : public WindowReader {
 public:
  explicit HostReader(const std::uint8_t* window) : window_(window) {}
  void enter() override {}
  void begin() override {}
  std::span<const std::uint8_t> fetch(std::uint64_t offset, std::size_t n) override { return {window_ + offset, n}; }
  void settle() override {}

 private:
  const std::uint8_t* window_;
};

class HostWriter final : public WindowWriter {
 public:
  explicit HostWriter(std::uint8_t* window) : window_(window) {}
  void enter() override {}
  std::span<std::uint8_t> stage(std::uint64_t offset, std::size_t n) override { return {window_ + offset, n}; }
  void commit(std::uint64_t, std::size_t) override {}
  void writeWord(std::uint64_t offset, std::uint64_t word) override {
    std::atomic_ref(*reinterpret_cast<std::uint64_t*>(window_ + offset)).store(word, std::memory_order_release);
  }
  void settle() override {}

 private:
  std::uint8_t* window_;
};

class HostBackend final : public Backend {
 public:
  int kind() const noexcept override { return moeBackendHost; }
  int device() const noexcept override { return -1; }
  bool bulkCopies() const noexcept override { return false; }
  void setSharers(int) noexcept override {}

  Memory allocatePrivate(std::size_t bytes, const Allocator& allocator) override {
    if (!allocator) return allocateHostVisible(bytes);
    Memory memory = allocator.take(bytes, moeMemoryPrivate);
    std::memset(memory.get(), 0, bytes);
    return memory;
  }

  Memory allocateHostVisible(std::size_t bytes) override {
    constexpr std::align_val_t kAlignment{256};
    auto* memory = static_cast<std::uint8_t*>(::operator new(bytes, kAlignment));
    std::memset(memory, 0, bytes);
    return {memory, [](std::uint8_t* p) { ::operator delete(p, kAlignment); }};
  }

  Memory shareWithSteps(void* begin, std::size_t, HostPages) override {
    return {static_cast<std::uint8_t*>(begin), [](std::uint8_t*) {}};
  }

  void copyToPrivate(void* to, const void* from, std::size_t bytes) override { std::memcpy(to, from, bytes); }

  void readWords(std::uint64_t* to, const std::uint64_t* from, std::size_t count) override {
    for (std::size_t i = 0; i < count; ++i) {
      to[i] = std::atomic_ref(const_cast<std::uint64_t&>(from[i])).load(std::memory_order_acquire);
    }
  }

  std::unique_ptr<WindowReader> makeReader(const std::uint8_t* window) override {
    return std::make_unique<HostReader>(window);
  }
  std::unique_ptr<WindowWriter> makeWriter(std::uint8_t* window) override {
    return std::make_unique<HostWriter>(window);
  }

  int routeWarpsMax() const noexcept override { return 1; }
  LaunchShape shapeFor(const Workload&) const noexcept override { return {.straight = true}; }
  Parts partsFor(const LaunchShape&, int, std::uint32_t rowBytes) const noexcept override { return {1, rowBytes}; }

  moeResult_t launch(Step step, const StepParams& params, const LaunchShape&, moeStream_t,
                     std::string*) noexcept override {
    runHostStep(step, params);
    // Until the caller completes the operation nobody waits here.
    if (const PutHelper* helper = putHelper(params.comm)) helper->leave((params.phases & kReceivePhase) == 0);
    return moeSuccess;
  }
  bool capturing(moeStream_t) const noexcept override { return false; }
  void synchronize() noexcept override {}
};

}  // namespace

std::unique_ptr<Backend> makeHostBackend() {
  return std::make_unique<HostBackend>();
}

}  // namespace moe
