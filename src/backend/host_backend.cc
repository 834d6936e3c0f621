// The host backend. It runs a step to its end within the call. The calling thread is one warp of one lane. If there is
// much to do, other threads are further warps.
#include <sched.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <new>
#include <vector>

#include "backend/backend.h"
#include "backend/host_threads.h"
#include "backend/snapshot.h"
#include "device/kernels/host_steps.h"
#include "device/policy/host/record.h"
#include "device/policy/host/wait.h"

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

// This thread's share of the processors, if `ranks` ranks of this machine share them. Ranks may also have been bound to
// their own processors.
int shareOfProcessors(int ranks) {
  cpu_set_t allowed;
  const bool known = ::sched_getaffinity(0, sizeof allowed, &allowed) == 0;
  const int online = std::max(1, static_cast<int>(::sysconf(_SC_NPROCESSORS_ONLN)));
  return std::clamp(online / std::max(ranks, 1), 1, known ? std::max(1, CPU_COUNT(&allowed)) : 1);
}

// 2 MiB pages save most address translations.
constexpr std::size_t kHugePage = 2 << 20;
constexpr std::align_val_t kAlignment{256}, kHugeAlignment{kHugePage};

class HostBackend final : public Backend {
 public:
  HostBackend(const HostOptions& options, HostStepRunner steps) : options_(options), steps_(steps) {}

  int kind() const noexcept override { return moeBackendHost; }
  int device() const noexcept override { return -1; }
  bool bulkCopies() const noexcept override { return false; }
  bool landingCombines() const noexcept override { return false; }
  bool hasPlainSteps() const noexcept override { return false; }
  bool overlapsSteps() const noexcept override { return false; }
  void setSharers(int ranks) noexcept override {
    threads_ = options_.threads > 0 ? options_.threads : std::min(shareOfProcessors(ranks), HostOptions::kThreadsAuto);
  }

  Memory allocatePrivate(std::size_t bytes, const Allocator& allocator) override {
    if (!allocator) return allocateHostVisible(bytes);
    Memory memory = allocator.take(bytes, moeMemoryPrivate);
    std::memset(memory.get(), 0, bytes);
    return memory;
  }

  Memory allocateHostVisible(std::size_t bytes) override {
    if (bytes >= kHugePage) return allocateLarge(bytes);
    auto* memory = static_cast<std::uint8_t*>(::operator new(bytes, kAlignment));
    std::memset(memory, 0, bytes);
    return {memory, [](std::uint8_t* p) { ::operator delete(p, kAlignment); }};
  }

  Memory shareWithSteps(void* begin, std::size_t, HostPages) override {
    return {static_cast<std::uint8_t*>(begin), [](std::uint8_t*) {}};
  }

  void copyToPrivate(void* to, const void* from, std::size_t bytes) override { std::memcpy(to, from, bytes); }
  void copyToPrivate(void* to, const void* from, std::size_t bytes, moeStream_t) override {
    std::memcpy(to, from, bytes);
  }

  void readWords(std::uint64_t* to, const std::uint64_t* from, std::size_t count) override {
    for (std::size_t i = 0; i < count; ++i) {
      to[i] = std::atomic_ref(const_cast<std::uint64_t&>(from[i])).load(std::memory_order_acquire);
    }
  }

  bool isFarFromHost() const noexcept override { return false; }
  bool bringWords(std::uint64_t* to, const std::uint64_t* from, std::size_t count, Deadline) override {
    readWords(to, from, count);
    return true;
  }

  bool loadsKernelsLazily() const noexcept override { return false; }
  std::unique_ptr<WindowReader> makeReader(const std::uint8_t* window) override {
    return std::make_unique<HostReader>(window);
  }
  std::unique_ptr<WindowWriter> makeWriter(std::uint8_t* window) override {
    return std::make_unique<HostWriter>(window);
  }

  std::unique_ptr<Snapshot> makeSnapshot(const std::uint64_t*, std::size_t bytesMax) override {
    return std::make_unique<HostSnapshot>(bytesMax, counterKeepsTime());
  }

  int routeWarpsMax() const noexcept override { return threads_; }
  int tableBlocksMax() const noexcept override { return threads_; }

  // A thread with little to do costs more than it saves.
  LaunchShape shapeFor(const Workload& work) const noexcept override {
    const std::int64_t warps =
        rowOf(work.step).computes() ? work.rows / kTokensPerThread : work.bytes / kBytesPerThread;
    return {.blocks = static_cast<int>(std::clamp<std::int64_t>(warps, 1, threads_)), .straight = true};
  }
  // Few rows are cut into parts, so that every thread has a share. A cast cuts them at its tiles.
  Parts partsFor(const LaunchShape& shape, int rows, std::uint32_t rowBytes) const noexcept override {
    constexpr std::int64_t kPiece = 1024;
    const int warps = shape.warps();
    if (warps == 1 || rows >= 4 * warps || rowBytes <= kPiece) return {1, rowBytes};
    const std::int64_t parts = (4 * warps + std::max(rows, 1) - 1) / std::max(rows, 1);
    const std::int64_t bytes = roundUp((rowBytes + parts - 1) / parts, kPiece);
    return {static_cast<int>((rowBytes + bytes - 1) / bytes), static_cast<std::uint32_t>(bytes)};
  }

  moeResult_t launch(Step step, const StepParams& params, const LaunchShape& shape, moeStream_t,
                     std::string* what) noexcept override {
    const HostRecord record(step, params);
    const moeResult_t result = run(step, params, shape.warps(), what);
    record.end();
    // Nobody waits here until the caller completes the operation.
    if (const PutHelper* helper = putHelper(params.comm)) helper->leave((params.phases & kReceivePhase) == 0);
    return result;
  }
  bool capturing(moeStream_t) const noexcept override { return false; }
  void synchronize() noexcept override {}
  void endThreads() noexcept override { others_.end(); }

 private:
  moeResult_t run(Step step, const StepParams& params, int warps, std::string* what) noexcept {
    if (warps == 1) {
      steps_(step, params, {0, 1, 1}, others_.pace());
      return moeSuccess;
    }
    try {
      const auto part = [&](int warp, HostPace& pace) { steps_(step, params, {warp, warps, warps}, pace); };
      others_.run(warps, std::ref(part));  // a reference needs no memory
      return moeSuccess;
    } catch (const Error& error) {
      *what = error.what();
      return error.result();
    } catch (const std::exception& error) {
      *what = error.what();
      return moeSystemError;
    }
  }

  static_assert(HostOptions::kThreadsMax <= kRowSharesMax, "a flag that counts rows has a share of each thread");

  static constexpr int kTokensPerThread = 1024;
  static constexpr std::int64_t kBytesPerThread = 512 << 10;

  static Memory allocateLarge(std::size_t bytes) {
    auto* memory = static_cast<std::uint8_t*>(::operator new(bytes, kHugeAlignment));
    ::madvise(memory, bytes, MADV_HUGEPAGE);  // refused by kernels without such pages
    std::memset(memory, 0, bytes);
    return {memory, [](std::uint8_t* p) { ::operator delete(p, kHugeAlignment); }};
  }

  const HostOptions options_;
  const HostStepRunner steps_;
  int threads_ = 1;
  HostThreads others_;
};

}  // namespace

std::unique_ptr<Backend> makeHostBackend(const HostOptions& options) {
  const HostStepRunner steps = hostStepRunner(options.simd);
  if (steps == nullptr) {
    throw Error(moeUnsupported, std::string("MOECOMM_HOST_SIMD is ") +
                                    (options.simd == HostSimd::avx2 ? "avx2" : "avx512") +
                                    ", but this processor, or this build of the library, has no such instructions");
  }
  return std::make_unique<HostBackend>(options, steps);
}

}  // namespace moe
