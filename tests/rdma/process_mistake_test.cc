// The adapter behind libfakemlx5.so finds posters' mistakes (process_mistakes.cc). Without this test, tests on it would
// prove little.
#include <gtest/gtest.h>

#include "rdma/process_world.h"
#include "support/base/sanitizers.h"

namespace moe::test {
namespace {

struct Mistake {
  const char* name;
  const char* mistake;
  const char* violation;  // part of the report; "" for an empty one
  const char* output;     // part of the printed output
};
constexpr Mistake kMistakes[] = {
    {"None", "none", "", "completes with 00"},
    {"NoneButAFork", "none-but-a-fork", "", "completes with 00\ncompletes with 00"},
    {"DoorbellBeforeRecord", "doorbell-before-record", "before its record", ""},
    {"RecordOfTheReceiveQueue", "record-of-the-receive-queue", "before its record", ""},
    {"OtherQueuePairInDoorbell", "other-queue-pair-in-doorbell", "names a queue pair that does not exist", ""},
    {"WrongIndex", "wrong-index", "index is not that of its slot", ""},
    {"WrongQueuePair", "wrong-queue-pair", "names another queue pair", ""},
    {"ReservedWord", "reserved-word", "reserved word behind the remote key", ""},
    {"DoorbellBeforeWqe", "doorbell-before-wqe", "index is not that of its slot", ""},
    {"MoreThanTheRingHolds", "too-many", "more is posted than the queue holds", ""},
    {"MoreThanCompletionsGaveBack", "unsignalled-too-many", "more is posted than the queue holds", ""},
    {"WqeWrittenAfterTheDoorbell", "late-write", "changed after the doorbell", ""},
    {"CompletionsThatNobodyTakes", "completions-not-taken", "overran", ""},
    {"DoorbellOfAQueuePairThatIsNotConnected", "not-connected", "before the queue pair may send", ""},
    {"WrongLkey", "wrong-lkey", "", "completes with 04"},
    {"WrongRkey", "wrong-rkey", "", "completes with 13"},
    {"BeyondTheRange", "beyond-the-range", "", "completes with 13"},
    {"LkeyOfAnotherDomain", "lkey-of-another-domain", "", "completes with 04"},
    {"RkeyOfAnotherDomain", "rkey-of-another-domain", "", "completes with 13"},
    {"ReadOnlyMemory", "read-only-memory", "", "completes with 13"},
    {"ReadIntoReadOnlyMemory", "read-into-read-only-memory", "", "completes with 04"},
    {"DeregisteredMemory", "deregistered-memory", "", "completes with 13"},
    {"UnalignedAtomic", "unaligned-atomic", "not aligned", "completes with 02"},
    {"AReceiverThatTakesNoWrites", "no-writes", "", "completes with 12"},
    {"MoreReadsThanTheReceiverTakes", "too-many-reads", "may read more at once", "completes with 00"},
    {"ObjectsThatAreLeft", "objects-left", "closed with 1 queue pairs, 1 completion queues, 1 memory regions and 1",
     ""},
    {"ADeviceThatIsLeftOpen", "device-left-open", "still open at the end of the program", ""},
    {"AnotherPsn", "other-psn", "", "completes with 15"},
    {"AnotherAddress", "other-address", "", "completes with 15"},
};

class ProcessMistake : public ::testing::TestWithParam<Mistake> {};
void PrintTo(const Mistake& mistake, std::ostream* out) {
  *out << mistake.name;
}
INSTANTIATE_TEST_SUITE_P(, ProcessMistake, ::testing::ValuesIn(kMistakes),
                         [](const auto& test) { return test.param.name; });

TEST_P(ProcessMistake, IsFound) {
#if MOE_TEST_TSAN
  if (GetParam().mistake == std::string("none-but-a-fork")) GTEST_SKIP() << "it knows no threads after a fork";
#endif
  WorldSettings settings;
  settings.scenario = std::string("mistake-") + GetParam().mistake;
  settings.processes = 1;
  const WorldResult result = runWorld(settings);
  EXPECT_EQ(result.status[0], 0) << result.describe();
  const std::string violation = GetParam().violation;
  if (violation.empty()) {
    EXPECT_EQ(result.violations, "");
  } else {
    EXPECT_NE(result.violations.find(violation), std::string::npos) << result.describe();
  }
  EXPECT_NE(result.output[0].find(GetParam().output), std::string::npos) << result.describe();
  EXPECT_TRUE(result.leftBehind.empty());
}

}  // namespace
}  // namespace moe::test
