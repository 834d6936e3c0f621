// Tests two things: records are left out if the ring was written while it was copied, and texts are escaped in JSON.
#include <gtest/gtest.h>

#include <filesystem>
#include <memory>

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "comm/recorder/clock_offset.h"
#include "comm/recorder/flight_recorder.h"
#include "support/base/process_limit.h"
#include "support/base/temporary_folder.h"

namespace moe::test {
namespace {

std::unique_ptr<StepRecorder> ringOf(std::uint64_t steps) {
  auto ring = std::make_unique<StepRecorder>();
  ring->steps = steps;
  for (std::uint64_t number = 1; number <= steps; ++number) {
    *ring->of(number) = {number, number, 1000 * number, 1000 * number + 500, 0, 0, whatWord(Step::route, 3, 0), 0};
  }
  return ring;
}

TEST(RecorderText, GivesRecordsInOrder) {
  const auto ring = ringOf(kRecordedSteps + 10);
  const auto records = recordsOf(*ring);
  ASSERT_EQ(records.size(), kRecordedSteps);
  EXPECT_EQ(records.front().number, 11u);
  EXPECT_EQ(records.back().number, kRecordedSteps + 10);
  EXPECT_TRUE(recordsOf(*ringOf(0)).empty());
}

TEST(RecorderText, LeavesOutARecordThatWasBeingOverwritten) {
  // The count was copied first; the oldest record already belongs to the next step, whole or in part.
  const auto ring = ringOf(kRecordedSteps);
  ring->of(1)->number = kRecordedSteps + 1;
  EXPECT_EQ(recordsOf(*ring).size(), kRecordedSteps - 1);
  ring->of(1)->number = 1;
  ring->of(1)->begin = 1000 * (kRecordedSteps + 1);
  EXPECT_EQ(recordsOf(*ring).size(), kRecordedSteps - 1);
  EXPECT_EQ(recordsOf(*ring).front().number, 2u);
}

TEST(RecorderText, IsJsonWhateverSentencesHold) {
  RecorderOwner owner;
  owner.sentence = "a \"quoted\" path\\with\nlines and \xff bytes";
  owner.host = "host\t";
  std::vector<StepRecord> records(1);
  records[0] = {
      7, 3, 100, 50, 0, waitWord(1023, 99), whatWord(Step::llRouteDispatch, kSendPhase, 5), (32ull << 32) | 4};
  const auto json = nlohmann::json::parse(recorderText(owner, 7, records));
  EXPECT_EQ(json["failure"], "a \"quoted\" path\\with\nlines and ? bytes");
  EXPECT_EQ(json["host"], "host\t");
  EXPECT_EQ(json["steps"][0].dump(), R"([7,"moeRouteDispatch","llRouteDispatch","send",5,3,4,32,100,0,0,1023,99])")
      << "an end before the begin is of the step that had the place before";
  EXPECT_EQ(json["columns"].size(), json["steps"][0].size());
}

TEST(RecorderText, HasTotalsIfTheyAreKnown) {
  RecorderOwner owner;
  EXPECT_FALSE(nlohmann::json::parse(recorderText(owner, 0, {})).contains("totals"));
  owner.totals = Totals{};
  owner.totals->dispatches = 7;
  owner.totals->stepNs = 9;
  const auto json = nlohmann::json::parse(recorderText(owner, 0, {}));
  EXPECT_EQ(json["totals"]["dispatches"], 7);
  EXPECT_EQ(json["totals"]["step_ns"], 9);
  EXPECT_FALSE(json["totals"].contains("wait_ns"));
}

TEST(RecorderTotals, CountOperationsOnceAndReportsNever) {
  CallTotals calls;
  StepParams p{};
  p.phases = kSendPhase | kReceivePhase;
  p.dispatch.tokens = 3;
  p.dispatch.rowBytes = 100;
  p.combine.tokens = 2;
  p.combine.rowBytes = 10;
  StepRecord ended{};
  ended.begin = 1000;
  ended.end = 1600;
  ended.worst = waitWord(1, 200);
  calls.add(Step::route, p, nullptr);
  calls.add(Step::htDispatch, p, &ended);
  calls.add(Step::tally, p, &ended);
  p.phases = kSendPhase;
  calls.add(Step::llCombine, p, &ended);
  p.phases = kReceivePhase;
  calls.add(Step::llCombine, p, &ended);
  Totals totals = calls.now();
  EXPECT_EQ(totals.routes, 1u);
  EXPECT_EQ(totals.dispatches, 1u);
  EXPECT_EQ(totals.combines, 1u);
  EXPECT_EQ(totals.calls, 2u);
  EXPECT_EQ(totals.rows, 5u);
  EXPECT_EQ(totals.bytes, 320u);
  TickScale scale;
  scale.nsPerTick = 0.5;
  tellNanoseconds(&totals, scale);
  EXPECT_EQ(totals.stepNs, 900u);
  EXPECT_EQ(totals.waitNs, 300u);
}

TEST(RecorderTotals, TakeTheNumbersOfStepsOverAllChannels) {
  CommState state{};
  for (int channel = 0; channel < kChannels; ++channel) state.epoch[channel] = std::uint64_t{1} << channel;
  Totals totals;
  totals.rows = 5;
  countFrom(state, &totals);
  EXPECT_EQ(totals.routes, 1u);
  EXPECT_EQ(totals.routes + totals.dispatches + totals.combines, (std::uint64_t{1} << kChannels) - 1);
  EXPECT_EQ(totals.combines & (1u << kHtCombineChannel | 1u << kLlCombineChannel),
            1u << kHtCombineChannel | 1u << kLlCombineChannel);
  EXPECT_EQ(totals.rows, 5u);
}

TEST(RecorderText, TellsNanosecondsOfTicks) {
  const auto ring = ringOf(2);
  ring->inTicks = 1;
  *ring->of(2) = {2, 1, 900, 1100, 1000, waitWord(7, 40), 0, 0};
  TickScale scale;
  scale.ticks = 1000;
  scale.ns = 5'000'000'000'000'000'000;
  scale.nsPerTick = 0.5;
  tellNanoseconds(ring.get(), scale);
  const StepRecord& told = *ring->of(2);
  EXPECT_EQ(told.begin, 4'999'999'999'999'999'950u);
  EXPECT_EQ(told.end, 5'000'000'000'000'000'050u);
  EXPECT_EQ(told.firstWaitEnd, 5'000'000'000'000'000'000u);
  EXPECT_EQ(told.worst, waitWord(7, 20));
  EXPECT_EQ(ring->inTicks, 0u);
  EXPECT_EQ(ring->of(1)->firstWaitEnd, 0u) << "none";
  EXPECT_EQ(ring->of(1)->worst, 0u) << "none";
}

TEST(RecorderText, KnowsWhichWaitIsLonger) {
  EXPECT_GT(waitWord(0, 5), waitWord(1023, 4));
  EXPECT_EQ(rankOfWait(waitWord(1023, 5)), 1023);
  EXPECT_EQ(timeOfWait(waitWord(1023, 5)), 5u);
  EXPECT_EQ(rankOfWait(0), -1);
}

// Without a word the kernel would end the process by SIGXFSZ.
TEST(RecorderText, AFileThatWouldBeLargerThanFilesMayBeIsRefusedWithTheLimit) {
  const TemporaryFolder folder;
  const ProcessLimit limit(RLIMIT_FSIZE, 100);
  try {
    writeWholeFile(folder.at("dump"), std::string(200, 'x'));
    ADD_FAILURE() << "it was written";
  } catch (const Error& error) {
    EXPECT_EQ(std::string(error.what()),
              "cannot write " + folder.at("dump") + ": File too large (limit 100 bytes, ulimit -f)");
  }
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
}

TEST(ClockOffset, LiesWithinWhatRoundsAllow) {
  // Rank 0's clock is 1000 ahead. A round: both enter within 20, both leave within 20 when both have entered.
  ClockBounds bounds;
  bounds.add({100, 160}, {1110, 1150});
  bounds.add({200, 240}, {1205, 1250});
  const ClockOffset offset = bounds.offset();
  EXPECT_NEAR(static_cast<double>(offset.offsetNs), 1000, static_cast<double>(offset.errorNs));
  EXPECT_LE(offset.errorNs, 45);
}

}  // namespace
}  // namespace moe::test
