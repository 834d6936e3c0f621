// Things that a program may do while a step waits for rows that a transport's thread copies to the window (decision
// 0082). The copy must not wait for the step.
#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <ostream>
#include <thread>
#include <vector>

#include "backend/backend.h"
#include "gpu/cuda_memory.h"
#include "gpu/waiting_kernel.h"

namespace moe::test {
namespace {

constexpr std::size_t kBytes = std::size_t{64} << 20;

struct Call {
  const char* name;
  std::function<void(cudaStream_t, std::uint8_t* memory)> make;
};

void PrintTo(const Call& call, std::ostream* out) {
  *out << call.name;
}

void copy(void* to, const void* from, std::size_t bytes, cudaStream_t stream) {
  check(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, stream), "cudaMemcpyAsync");
}

std::vector<Call> calls() {
  static std::vector<std::uint8_t> pageable(kBytes);
  return {
      {"Nothing", [](cudaStream_t, std::uint8_t*) {}},
      {"LaunchesOfALoadedKernel",
       [](cudaStream_t stream, std::uint8_t*) {
         for (int i = 0; i < 3000; ++i) launchNothing(stream);
       }},
      {"CopyToPageableMemory",
       [](cudaStream_t stream, std::uint8_t* memory) { copy(pageable.data(), memory, kBytes, stream); }},
      {"CopyFromPageableMemory",
       [](cudaStream_t stream, std::uint8_t* memory) { copy(memory, pageable.data(), kBytes, stream); }},
      {"Malloc", [](cudaStream_t, std::uint8_t*) { static const auto kept = allocate<std::uint8_t>(kBytes); }},
      {"SynchronizeDevice",
       [](cudaStream_t, std::uint8_t*) { check(cudaDeviceSynchronize(), "cudaDeviceSynchronize"); }},
  };
}

class WindowPort : public testing::TestWithParam<Call> {};

TEST_P(WindowPort, CopiesWhileAStepWaits) {
  std::string why;
  const std::unique_ptr<Backend> backend = makeCudaBackend(0, Bulk::automatic, &why);
  if (!backend) GTEST_SKIP() << why;
  const auto memory = allocate<std::uint8_t>(kBytes);
  const auto word = allocate<std::uint64_t>(1);
  const auto came = allocate<int>(1);
  check(cudaMemset(word.get(), 0, sizeof(std::uint64_t)), "cudaMemset");
  cudaStream_t stream = nullptr;
  check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "cudaStreamCreate");
  launchNothing(stream);  // loads it
  launchWaiting(word.get(), 0, came.get(), stream);
  check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");

  const auto writer = backend->makeWriter(reinterpret_cast<std::uint8_t*>(word.get()));
  launchWaiting(word.get(), 1, came.get(), stream);
  std::thread thread([&] {
    writer->enter();
    std::this_thread::sleep_for(std::chrono::milliseconds(100));  // the call is made first
    writer->writeWord(0, 1);
    writer->settle();
  });
  GetParam().make(stream, memory.get());
  check(cudaStreamSynchronize(stream), "cudaStreamSynchronize");
  thread.join();

  int result = 0;
  check(cudaMemcpy(&result, came.get(), sizeof result, cudaMemcpyDeviceToHost), "cudaMemcpy");
  EXPECT_EQ(result, 1) << "the kernel waited until its deadline";
  check(cudaStreamDestroy(stream), "cudaStreamDestroy");
}

INSTANTIATE_TEST_SUITE_P(Calls, WindowPort, testing::ValuesIn(calls()),
                         [](const auto& call) { return call.param.name; });

}  // namespace
}  // namespace moe::test
