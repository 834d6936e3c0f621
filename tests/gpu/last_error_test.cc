// The cuda backend clears CUDA's last error after failures that it reports or handles. Otherwise the program would
// blame its own next call for them.
#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include "backend/backend.h"
#include "backend/cuda_raii.h"

namespace moe::test {
namespace {

class LastError : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string why;
    backend_ = makeCudaBackend(0, Bulk::automatic, &why);
    if (!backend_) GTEST_SKIP() << why;
    ASSERT_EQ(cudaPeekAtLastError(), cudaSuccess);
  }

  std::unique_ptr<Backend> backend_;
};

TEST_F(LastError, OfALaunchThatFailsIsCleared) {
  std::string what;
  const LaunchShape tooManyThreads{1, 4096, false};
  EXPECT_EQ(backend_->launch(Step::route, StepParams{}, tooManyThreads, nullptr, &what), moeCudaError);
  EXPECT_NE(what.find("cannot launch a kernel"), std::string::npos) << what;
  EXPECT_EQ(cudaPeekAtLastError(), cudaSuccess);
}

// While another stream records in this mode, CUDA refuses even a query of the default stream.
TEST_F(LastError, OfACaptureQueryThatFailsIsCleared) {
  cudaStream_t recording = nullptr;
  ASSERT_EQ(cudaStreamCreate(&recording), cudaSuccess);
  ASSERT_EQ(cudaStreamBeginCapture(recording, cudaStreamCaptureModeGlobal), cudaSuccess);
  backend_->capturing(nullptr);
  EXPECT_EQ(cudaPeekAtLastError(), cudaSuccess);
  EXPECT_TRUE(backend_->capturing(reinterpret_cast<moeStream_t>(recording)));
  cudaGraph_t graph = nullptr;
  cudaStreamEndCapture(recording, &graph);
  if (graph != nullptr) cudaGraphDestroy(graph);
  cudaGetLastError();
  cudaStreamDestroy(recording);
}

TEST(CudaCheck, MakesItsTextForAFailureOnly) {
  int made = 0;
  const auto text = [&] {
    ++made;
    return std::string("a call");
  };
  checkCuda(cudaSuccess, text);
  EXPECT_EQ(made, 0);
  try {
    checkCuda(cudaErrorInvalidValue, text);
    FAIL();
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), "a call: cudaErrorInvalidValue (invalid argument)");
  }
  EXPECT_EQ(made, 1);
}

}  // namespace
}  // namespace moe::test
