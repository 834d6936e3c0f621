// The log of a communicator: what it found and chose, and every call if asked.
#include <fmt/format.h>

#include <cstdlib>
#include <regex>

#include "support/api/moe_step.h"
#include "support/base/log_lines.h"
#include "support/base/variable.h"

namespace moe::test {
namespace {

class LogOf : public OnBackend {
 protected:
  moeConfig_t config(std::int32_t level) {
    moeConfig_t config = OnBackend::config();
    const Log::Options options = lines_.options(level);
    config.log = options.sink;
    config.logUser = options.user;
    config.logLevel = level;
    return config;
  }
  ::testing::AssertionResult says(const std::string& pattern) {
    if (std::regex_search(lines_.text(), std::regex(pattern))) return ::testing::AssertionSuccess();
    return ::testing::AssertionFailure() << "no line matches \"" << pattern << "\":\n" << lines_.text();
  }
  int count(const std::string& pattern) {
    const std::string text = lines_.text();
    const std::regex regex(pattern);
    return static_cast<int>(std::distance(std::sregex_iterator(text.begin(), text.end(), regex), {}));
  }

  LogLines lines_;
};

moeHandleConfig_t smallHandle() {
  moeHandleConfig_t config = MOE_HANDLE_CONFIG_INITIALIZER;
  config.experts = 4;
  config.topk = 2;
  config.tokensMax = 8;
  return config;
}

TEST_P(LogOf, UnknownVariablesIsAWarningWithTheNearestName) {
  const Variable misspelt("MOECOMM_TIMOUT_MS", "1000"), unlike("MOECOMM_QQQQQQQQ", "1");
  const Variable known("MOECOMM_LOCAL_NRANKS", "2"), python("MOECOMM_LIBRARY", "x"), test("MOECOMM_SIM_SEED", "1");
  world(2, config(moeLogWarn), [](RankContext&) {});
  for (int rank : {0, 1}) {
    EXPECT_TRUE(
        says(fmt::format("moecomm warn \\[rank {}/2\\] init: the environment has MOECOMM_TIMOUT_MS, which "
                         "moecomm \\d+\\.\\d+ does not know; did you mean MOECOMM_TIMEOUT_MS\\?\n",
                         rank)));
    EXPECT_TRUE(
        says(fmt::format("\\[rank {}/2\\] init: the environment has MOECOMM_QQQQQQQQ, which moecomm "
                         "\\d+\\.\\d+ does not know\n",
                         rank)));
  }
  EXPECT_EQ(count("the environment has"), 4);
}

TEST_P(LogOf, InfoSaysWhatWasFoundAndChosen) {
  const Variable variable("MOECOMM_RDMA_RETRIES", "5"), overruled("MOECOMM_TOPK_MAX", "3"), empty("MOECOMM_NICS", "");
  const Variable secret("MOECOMM_SECRET", "0123456789abcdef0123456789abcdef");
  moeConfig_t own = config(moeLogInfo);
  own.domainSize = 2;
  own.transport = moeTransportTcp;
  world(4, own, [](RankContext& context) {
    moeHandle_t chosen = nullptr, asked = nullptr;
    moeHandleConfig_t shape = smallHandle();
    MOE_ASSERT_OK(moeHandleCreate(&chosen, context.comm, &shape), context);
    shape.mode = moeModeHt;
    shape.layout = moeLayoutExpertMajor;
    MOE_ASSERT_OK(moeHandleCreate(&asked, context.comm, &shape), context);
  });
  EXPECT_TRUE(says("\\[rank 0/4\\] init: version \\d+\\.\\d+\\.\\d+; from the environment: MOECOMM_RDMA_RETRIES=5\n"));
  EXPECT_TRUE(says("\\[rank 0/4\\] init: peers: 1 \\((direct|CUDA IPC)\\), 2-3 \\(TCP\\)\n"));
  EXPECT_TRUE(says("\\[rank 3/4\\] init: peers: 2 \\((direct|CUDA IPC)\\), 0-1 \\(TCP\\)\n"));
  const std::string where = GetParam() == moeBackendCuda
                                ? "; the largest dispatch uses [1-4] multiprocessors, the largest combine [1-4]\n"
                                : "\n";
  EXPECT_TRUE(
      says("dev: handle 0: mode (LL|HT) \\(chosen\\), layout FLAT, 4 experts, 2 per token, at most 8 "
           "tokens" +
           where));
  EXPECT_TRUE(
      says("dev: handle 1: mode HT \\(asked for\\), layout EXPERT_MAJOR, 4 experts, 2 per token, at "
           "most 8 tokens" +
           where));
  EXPECT_EQ(count("0123456789abcdef"), 0);
  EXPECT_EQ(count(" (debug|trace) "), 0);
}

TEST_P(LogOf, TraceSaysEveryCallAndDebugWhatIsMade) {
  world(1, config(moeLogTrace), [](RankContext& context) {
    moeHandle_t handle = nullptr;
    const moeHandleConfig_t shape = smallHandle();
    MOE_ASSERT_OK(moeHandleCreate(&handle, context.comm, &shape), context);
    const std::vector<std::int32_t> experts = {0, 1, 2, 3, 0, 3};
    MOE_ASSERT_OK(
        moeRoute(handle, context.arena.put(std::span<const std::int32_t>(experts)), nullptr, 3, context.stream()),
        context);
    moeDispatchArgs_t args = MOE_DISPATCH_ARGS_INITIALIZER;
    args.rowType = moeRowFp32;
    args.hidden = 64;
    args.outRowsMax = 8;
    args.rows = context.arena.take(3 * 256);
    EXPECT_EQ(moeDispatch(handle, &args, context.stream()), moeInvalidArgument);
    args.outRows = context.arena.take(8 * 256);
    MOE_EXPECT_OK(moeDispatch(handle, &args, context.stream()), context);
    MOE_EXPECT_OK(moeHandleDestroy(handle), context);
  });
  const std::string handle = "handle 0";
  EXPECT_TRUE(says("moecomm debug \\[rank 0/1\\] init: \\d+ ms: all ranks have their windows\n"));
  EXPECT_TRUE(says("moecomm debug \\[rank 0/1\\] dev: " + handle + ": \\d+ bytes of private memory, \\d+ for counts"));
  EXPECT_TRUE(says("moecomm trace \\[rank 0/1\\] dev: moeRoute: " + handle + ", 3 tokens: success after \\d+ us\n"));
  EXPECT_TRUE(says("dev: moeDispatch: " + handle + ", 3 tokens, rows of 256 bytes: invalid argument after \\d+ us\n"));
  EXPECT_TRUE(says("dev: moeDispatch: " + handle + ", 3 tokens, rows of 256 bytes: success after \\d+ us\n"));
  EXPECT_TRUE(says("moecomm debug \\[rank 0/1\\] dev: " + handle + " is destroyed\n"));
}

MOE_INSTANTIATE_BACKENDS(LogOf);

}  // namespace
}  // namespace moe::test
