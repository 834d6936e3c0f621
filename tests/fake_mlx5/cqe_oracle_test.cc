// device/queue/mlx5 and libmlx5 read the same completions, written as an adapter writes them.
#include <gtest/gtest.h>

#include <cstdio>

#include "fake_mlx5/oracle.h"

namespace moe::test {
namespace {

using mlx5::CqeOpcode, mlx5::Syndrome;

constexpr Syndrome kSyndromes[] = {
    Syndrome::localLength,  Syndrome::localOperation,  Syndrome::localProtection, Syndrome::flushed,
    Syndrome::windowBind,   Syndrome::badResponse,     Syndrome::localAccess,     Syndrome::remoteInvalidRequest,
    Syndrome::remoteAccess, Syndrome::remoteOperation, Syndrome::retriesExceeded, Syndrome::receiverNotReady,
    Syndrome::remoteAborted};
static_assert(std::size(kSyndromes) == 13);

// Prints the number of comparisons at the end of the program. The total over all tests must not shrink unnoticed.
class Report : public ::testing::Environment {
  static constexpr std::uint64_t kComparisonsMin = 2'500'000;

  void TearDown() override {
    std::printf("oracle: %llu comparisons with libmlx5, %llu differences\n",
                static_cast<unsigned long long>(Oracle::comparisons()),
                static_cast<unsigned long long>(Oracle::unexpectedDifferences()));
    EXPECT_EQ(Oracle::unexpectedDifferences(), 0u);
    const auto& program = *::testing::UnitTest::GetInstance();
    const bool all = program.test_to_run_count() == program.total_test_count();
    EXPECT_GE(Oracle::comparisons(), all ? kComparisonsMin : 1);
  }
};
const auto* const report = ::testing::AddGlobalTestEnvironment(new Report);

std::uint64_t postWrite(Oracle& oracle) {
  Request request;
  request.flags = mlx5::kSignalled;
  request.remote = {0x1000, 1};
  request.local = oracle.local(64);
  return oracle.post(Interface::postSend, {request});
}

TEST(CqeOracle, EverySyndromeMeansWhatLibmlx5TakesItFor) {
  Oracle oracle;
  for (const Syndrome syndrome : kSyndromes) {
    for (const int vendor : {0x00, 0x51, 0xff}) {
      mlx5::Completion failed{};
      failed.opcode = CqeOpcode::requesterError;
      failed.wqeOpcode = static_cast<std::uint8_t>(mlx5::Opcode::rdmaWrite);
      failed.counter = static_cast<std::uint16_t>(postWrite(oracle));
      failed.syndrome = syndrome;
      failed.vendorSyndrome = static_cast<std::uint8_t>(vendor);
      oracle.complete(failed);
    }
  }
  ASSERT_TRUE(oracle.differences().empty()) << oracle.differences().front();
}

TEST(CqeOracle, AReceivedWriteWithImmediateSaysHowMuchAndWithWhat) {
  Oracle oracle;
  for (std::uint16_t i = 0; i < 300; ++i) {  // once around the completion queue
    oracle.postReceive(5000u + i);
    mlx5::Completion received{};
    received.opcode = CqeOpcode::writeImmReceived;
    received.counter = i;
    received.bytes = 3000u + i;
    received.immediate = 0xabcd1234u + i;
    oracle.complete(received);
  }
  ASSERT_TRUE(oracle.differences().empty()) << oracle.differences().front();
}

}  // namespace
}  // namespace moe::test
