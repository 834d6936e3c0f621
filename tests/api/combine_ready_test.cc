// Combines that begin before the rows of the experts are made (moeReady_t). A thread makes the rows of a rank block by
// block, the last block first, while the combine runs. The result has the same bits as a combine of rows that are
// ready.
#include <atomic>
#include <cstring>
#include <numeric>
#include <thread>

#include "support/api/refusal_calls.h"
#include "support/base/rng.h"

namespace moe::test {
namespace {

constexpr int kRanks = 2, kExpertsEach = 2, kPerRank = 64, kWidth = 128, kGroupPlaces = kRanks * kPerRank;

struct Waiting {
  int mode, layout, blockRows, weights, flags, wire;
};

moeConfig_t wideConfig() {
  moeConfig_t config = testConfig(moeBackendHost);
  config.llTokensMax = kPerRank;
  config.stagingRows = kGroupPlaces;
  return config;
}

// A rank's rows of one route, in host memory.
class ReadyStep {
 public:
  ReadyStep(RankContext& context, const Waiting& waiting) : waiting_(waiting) {
    moeHandleConfig_t shape = handleOf(waiting.mode, waiting.layout);
    shape.tokensMax = kPerRank;
    shape.expertAlignment = waiting.layout == moeLayoutExpertMajor ? 128 : 0;
    EXPECT_EQ(moeHandleCreate(&handle_, context.comm, &shape), moeSuccess) << context.error();
    Rng rng(static_cast<std::uint64_t>(7 + context.rank));
    for (int t = 0; t < kPerRank; ++t) {  // many tokens have both experts of a rank
      const int first = rng.below(4);
      ids_.push_back(first), ids_.push_back((first + rng.between(1, 3)) % 4);
      weights_.push_back(0.25f * static_cast<float>(t % 7)), weights_.push_back(1.5f);
    }
    MOE_EXPECT_OK(moeRoute(handle_, ids_.data(), weights_.data(), kPerRank, nullptr), context);
    std::vector<float> tokens(static_cast<std::size_t>(kPerRank) * kWidth, 1.0f);
    moeDispatchArgs_t args = MOE_DISPATCH_ARGS_INITIALIZER;
    rows_.resize(static_cast<std::size_t>(kExpertsEach * kGroupPlaces * kWidth));
    args.rows = tokens.data();
    args.rowType = moeRowFp32;
    args.hidden = kWidth;
    args.outRows = rows_.data();
    args.outRowsMax = kExpertsEach * kGroupPlaces;
    MOE_EXPECT_OK(moeDispatch(handle_, &args, nullptr), context);
    made_.resize(rows_.size());
    std::generate(made_.begin(), made_.end(), [&] { return static_cast<float>(rng.between(-999, 999)) / 8.0f; });
    words_.resize(static_cast<std::size_t>(2 * kExpertsEach));
  }

  moeHandle_t handle() const { return handle_; }
  // Words of this step: two blocks of 64 rows, or one of 128, for each expert.
  int wordCount() const { return waiting_.blockRows == 64 ? 2 * kExpertsEach : kExpertsEach; }

  CombineFields args(std::vector<float>& rows) {
    CombineFields args;
    sums_.assign(static_cast<std::size_t>(kPerRank) * kWidth, -1.0f);
    args.rows = rows.data();
    args.rowType = moeRowFp32;
    args.hidden = kWidth;
    args.out = sums_.data();
    args.weights = waiting_.weights;
    args.flags = waiting_.flags;
    args.wire = waiting_.wire;
    args.ready.completeSms = (args.flags & moeSendOnly) != 0 ? 3 : 0;
    return args;
  }
  std::vector<float> plain() {
    CombineFields given = args(made_);
    return run(given);
  }
  // `made`: how many blocks the thread makes.
  std::vector<float> behindBlocks(std::uint32_t value, int made) {
    std::fill(rows_.begin(), rows_.end(), -7777.0f);
    CombineFields given = args(rows_);
    given.ready.words = words_.data();
    given.ready.blockRows = waiting_.blockRows;
    given.ready.value = value;
    const std::jthread experts([this, made] {
      for (int block = wordCount() - 1; block >= wordCount() - made; --block) makeBlock(block);
    });
    return run(given);
  }

 private:
  std::vector<float> run(CombineFields given) {
    moeCombine(handle_, given.linked(), nullptr);
    if ((given.flags & moeSendOnly) != 0) moeComplete(handle_, nullptr);
    return sums_;
  }
  // EXPERT_MAJOR groups are shorter, so that a block may lie behind the last row.
  void makeBlock(int block) {
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
    const auto each = static_cast<std::size_t>(waiting_.blockRows == 0 ? kGroupPlaces : waiting_.blockRows) * kWidth;
    const std::size_t first = firstRow(block) * kWidth, end = std::min(first + each, rows_.size());
    for (std::size_t i = first; i < end; ++i) rows_[i] = made_[i];
    std::atomic_ref(words_[static_cast<std::size_t>(block)]).fetch_add(1, std::memory_order_release);
  }
  std::size_t firstRow(int block) {
    if (waiting_.blockRows != 0) return static_cast<std::size_t>(block * waiting_.blockRows);
    moeCounts_t counts = MOE_COUNTS_INITIALIZER;
    EXPECT_EQ(moeHandleGetCounts(handle_, &counts), moeSuccess);
    const bool padded = waiting_.layout == moeLayoutExpertMajorPadded;
    int first = 0;  // a group of EXPERT_MAJOR has a multiple of 128 rows
    for (int e = 0; e < block; ++e) first += padded ? kGroupPlaces : (counts.rowsPerExpert[e] + 127) / 128 * 128;
    return static_cast<std::size_t>(first);
  }

  Waiting waiting_;
  moeHandle_t handle_ = nullptr;
  std::vector<std::int32_t> ids_;
  std::vector<float> weights_, rows_, made_, sums_;
  std::vector<std::uint32_t> words_;
};

TEST(CombineReady, HasTheBitsOfACombineOfRowsThatAreThere) {
  for (const int mode : {moeModeHt, moeModeLl}) {
    for (const int layout : {moeLayoutExpertMajor, moeLayoutExpertMajorPadded}) {
      for (const int blockRows : {0, 64, 128}) {
        SCOPED_TRACE(::testing::Message() << "mode " << mode << " layout " << layout << " blocks of " << blockRows);
        world(kRanks, wideConfig(), [&](RankContext& context) {
          ReadyStep step(context, {mode, layout, blockRows, blockRows == 64 ? moeWeightsApply : moeWeightsApplied,
                                   blockRows == 0 ? moeSendOnly : 0, moeWireRow});
          const std::vector<float> plain = step.plain();
          for (std::uint32_t value = 1; value <= 2; ++value) {  // the words are not cleared between steps
            EXPECT_EQ(step.behindBlocks(value, step.wordCount()), plain) << "target " << value;
          }
        });
      }
    }
  }
}

TEST(CombineReady, GoesWithAWireFormat) {
  for (const int mode : {moeModeHt, moeModeLl}) {
    world(kRanks, wideConfig(), [&](RankContext& context) {
      ReadyStep step(context, {mode, moeLayoutExpertMajor, 64, moeWeightsApply, 0, moeWireFp8Block});
      const std::vector<float> plain = step.plain();
      EXPECT_EQ(step.behindBlocks(1, step.wordCount()), plain);
    });
  }
}

// The other rank waits for this one a little longer.
TEST(CombineReady, NamesTheExpertWhoseBlockNeverComes) {
  for (const int mode : {moeModeHt, moeModeLl}) {
    moeConfig_t quick = wideConfig();
    quick.timeoutMs = 600;
    world(kRanks, quick, [&](RankContext& context) {
      ReadyStep step(context, {mode, moeLayoutExpertMajorPadded, 64, moeWeightsApplied, 0, moeWireRow});
      context.meet();
      step.behindBlocks(5, context.rank == 0 ? step.wordCount() : step.wordCount() - 2);
      moeResult_t error = moeSuccess;
      EXPECT_EQ(moeCommGetAsyncError(context.comm, &error), moeSuccess);
      EXPECT_EQ(error, moeTimeout);
      EXPECT_TRUE(says(context.error(), "moeCombine: rows of its local expert "));
      EXPECT_TRUE(says(context.error(), "which has not reached 5)"));
      context.meet();
    });
  }
}

TEST(CombineReady, IsRefusedWhereItCannotCount) {
  world(2, testConfig(moeBackendHost), [](RankContext& context) {
    std::uint32_t words[64] = {};
    moeHandleConfig_t shape = handleOf(moeModeHt, moeLayoutExpertMajor);
    shape.expertAlignment = 64;
    Calls flat(context, handleOf(moeModeHt, moeLayoutFlat)), aligned(context, shape);
    Calls slots(context, handleOf(moeModeLl, moeLayoutRankMajor));
    const auto refuses = [&](Calls& calls, std::int32_t blockRows, const void* ready, const char* sentence) {
      CombineFields args = calls.combineArgs();
      args.ready.words = static_cast<const std::uint32_t*>(ready);
      args.ready.blockRows = blockRows;
      args.ready.value = 1;
      EXPECT_EQ(calls.combine(args), moeInvalidArgument);
      EXPECT_TRUE(says(context.error(), sentence)) << context.error();
    };
    for (Calls* calls : {&flat, &slots, &aligned}) calls->untilCombine();
    refuses(flat, 64, words, "but only layouts with a row per expert");
    refuses(slots, 0, words, "but only layouts with a row per expert");
    refuses(aligned, 63, words, "args.ready.blockRows is 63, must be 0, 64 or 128");
    refuses(aligned, 128, words, "args.ready.blockRows is 128, but config.expertAlignment is 64");
    refuses(aligned, 64, reinterpret_cast<const char*>(words) + 2, "args.ready.words is ");
    for (Calls* calls : {&flat, &slots}) {  // the words are unchanged
      MOE_EXPECT_OK(calls->combine(calls->combineArgs()), context);
      calls->expectSums(2.0f);
    }
    MOE_EXPECT_OK(aligned.combine(aligned.combineArgs()), context);  // its aligned rows had no room in the output
  });
}

}  // namespace
}  // namespace moe::test
