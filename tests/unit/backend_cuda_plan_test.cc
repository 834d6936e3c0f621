#include <gtest/gtest.h>

#include <cmath>

#include "backend/cuda_plan.h"

namespace moe::test {
namespace {

constexpr GpuMachine kH200{132, 1, 232448};

TEST(CudaPlan, AllBlocksOfAllRanksOnAGpuFitAtOnce) {
  for (int sharers : {1, 2, 4, 9, 200}) {
    GpuMachine machine = kH200;
    machine.sharers = sharers;
    for (const StepRow& row : kSteps.rows) {
      const Step step = row.step;
      for (int items : {0, 1, 128, 4096, 1 << 20}) {
        const LaunchShape shape = planLaunch(machine, {step, items, items, 14336, 0}, true);
        EXPECT_GE(shape.blocks, 1);
        EXPECT_GE(shape.warpsPerBlock, 1);
        const int warpsMax = shape.bulk       ? bulkWarps(machine, step, 14336)
                             : row.computes() ? kRouteWarpsPerBlock
                                              : row.warps;
        EXPECT_LE(shape.warpsPerBlock, warpsMax) << "step " << static_cast<int>(step) << ", " << items;
        EXPECT_LE(shape.blocks, std::max(1, 132 / sharers));
      }
    }
  }
}

TEST(CudaPlan, ARouteHasNoMoreBlocksThanItsTablesHaveRows) {
  for (int items : {1, 3, 100, 256, 5000}) {
    EXPECT_LE(planLaunch(kH200, {Step::route, items, items, 0, 0}, true).blocks, kRouteBlocksMax);
  }
}

TEST(CudaPlan, FewRowsTakeFewBlocks) {
  EXPECT_EQ(planLaunch(kH200, {Step::llDispatch, 128, 1, 14336, 0}, true).blocks, 2);
  EXPECT_EQ(planLaunch(kH200, {Step::llDispatch, 128, 0, 14336, 0}, true).blocks, 1);
  EXPECT_EQ(planLaunch(kH200, {Step::llDispatch, 128, 128, 14336, 0}, true).blocks, 132);
  EXPECT_EQ(planLaunch(kH200, {Step::llDispatch, 128, 128, 14336, 16}, true).blocks, 16);
}

TEST(CudaPlan, OperationsThatOnlyMoveRowsLeaveMostMultiprocessorsAlone) {
  for (const Step step : {Step::llDispatch, Step::combine}) {
    EXPECT_EQ(planLaunch(kH200, {step, 128, 128, 14336, 0, true}, true).blocks, 33);
    EXPECT_EQ(planLaunch(kH200, {step, 128, 1, 14336, 0, true}, true).blocks, 2);
    EXPECT_EQ(planLaunch(kH200, {step, 128, 128, 14336, 8, true}, true).blocks, 8);
  }
  EXPECT_EQ(planLaunch({2, 1, 232448}, {Step::llDispatch, 128, 128, 14336, 0, true}, true).blocks, 1);
}

TEST(CudaPlan, ARouteTakesNoMoreThanTheCallerAllows) {
  EXPECT_EQ(planLaunch(kH200, {Step::route, 4096, 4096, 0, 0}, true).blocks, 64);
  EXPECT_EQ(planLaunch(kH200, {Step::route, 4096, 4096, 0, 16}, true).blocks, 16);
  EXPECT_EQ(planLaunch(kH200, {Step::route, 4096, 256, 0, 16}, true).blocks, 8);
  EXPECT_EQ(planLaunch(kH200, {Step::route, 4096, 4096, 0, 1}, true).blocks, 1);
}

TEST(CudaPlan, ADividedDispatchCountsAllOfItsWarps) {
  const LaunchShape divided = planLaunch(kH200, {Step::htDispatch, 4096, 4096, 14336, 16}, true);
  EXPECT_EQ(divided.describingWarps, describingWarps(Step::htDispatch));
  EXPECT_EQ(divided.warps(), 16 * (kBulkWarpsMax + describingWarps(Step::htDispatch)));
  EXPECT_EQ(planLaunch(kH200, {Step::htDispatch, 4096, 4096, 14336, 16}, false).describingWarps, 0);
  EXPECT_EQ(planLaunch(kH200, {Step::htDispatchWaves, 4096, 4096, 14336, 16}, true).describingWarps, 0);
}

// ---- The number of multiprocessors that a large operation takes ----

GpuMachine withLink(double gigabytes, int sharers = 1) {
  return {132, sharers, 232448, gigabytes};
}

int largeBlocks(const GpuMachine& machine, Step step, std::int64_t bytes, int sms = 0) {
  return planLaunch(machine, {step, 4096, 4096, 14336, sms, true, bytes}, true).blocks;
}

constexpr double kNvlink4 = 18 * 26.562;  // of an H200

// 4096 tokens, each to at most 4 ranks, rows of 14336 bytes. kDispatchSpeed and kCombineSpeed were fitted to this case.
TEST(CudaPlan, LargeMovesTakeWhatTheTablesSay) {
  constexpr std::int64_t kBytes = std::int64_t{4096} * 4 * 14336;
  EXPECT_EQ(largeBlocks(withLink(kNvlink4), Step::htDispatch, kBytes), 32) << "16 are 2.1 % slower";
  EXPECT_EQ(largeBlocks(withLink(kNvlink4), Step::combine, kBytes), 16) << "0.7 % slower than 32";
}

TEST(CudaPlan, TheModelMeetsTheTimesThatItWasFittedTo) {
  constexpr double kWireBytes = 159.2e6;
  const auto microseconds = [](const MoveSpeed& speed, int multiprocessors) {
    const double wire = kNvlink4 * speed.linkShare, x = wire / (multiprocessors * speed.multiprocessorGBs);
    return kMoveFixedUs + kWireBytes / wire / 1000 * std::pow(1 + std::pow(x, 4), 0.25);
  };
  const auto meets = [&](const MoveSpeed& speed, int multiprocessors, double measured) {
    EXPECT_NEAR(microseconds(speed, multiprocessors), measured, measured / 100) << multiprocessors;
  };
  meets(kDispatchSpeed, 8, 598.9), meets(kDispatchSpeed, 16, 492.6), meets(kDispatchSpeed, 32, 482.3);
  meets(kCombineSpeed, 8, 553), meets(kCombineSpeed, 16, 511.7), meets(kCombineSpeed, 32, 508);
}

TEST(CudaPlan, MoreBytesNeverTakeFewerMultiprocessors) {
  for (const double link : {1.0, 64.0, 300.0, kNvlink4, 18 * 53.125, 5000.0}) {
    for (const int sharers : {1, 2, 4, 40}) {
      for (const Step step : {Step::htDispatch, Step::combine}) {
        int before = 0;
        for (std::int64_t bytes = 0; bytes < std::int64_t{1} << 40; bytes = bytes * 5 / 4 + 1) {
          const int blocks = largeBlocks(withLink(link, sharers), step, bytes);
          ASSERT_GE(blocks, before) << bytes << " bytes, " << link << " GB/s, " << sharers;
          ASSERT_GE(blocks, std::min(kMoveStep, 132 / sharers));
          ASSERT_LE(blocks, std::min(kMoveMost, 132 / sharers));
          before = blocks;
        }
      }
    }
  }
}

TEST(CudaPlan, AFasterLinkNeverTakesFewerMultiprocessors) {
  for (const std::int64_t bytes : {std::int64_t{1} << 14, std::int64_t{1} << 20, std::int64_t{1} << 28}) {
    int before = 0;
    for (double link = 1; link < 1e5; link *= 1.2) {
      const int blocks = largeBlocks(withLink(link), Step::htDispatch, bytes);
      ASSERT_GE(blocks, before) << bytes << " bytes, " << link << " GB/s";
      before = blocks;
    }
    EXPECT_LE(before, kMoveMost);
  }
}

TEST(CudaPlan, RanksThatShareAGpuShareItsLinks) {
  EXPECT_EQ(largeBlocks(withLink(kNvlink4, 2), Step::htDispatch, 1 << 28), 16);
  EXPECT_EQ(largeBlocks(withLink(kNvlink4, 4), Step::htDispatch, 1 << 28), 16);
}

// Casts, payloads, codes and copies by lanes take more than a share of the wire's time.
int blocksWithCopies(Step step) {
  if (step == Step::htCastWaves || rowOf(step).family == StepFamily::codedCombine) return 132;
  return step == Step::htCast || step == Step::htDispatchWaves ? kBusyMultiprocessors : kLargeMultiprocessors;
}

TEST(CudaPlan, WithoutALinkOrWithCopiesLargeOperationsTakeWhatWasMeasured) {
  constexpr std::int64_t kBytes = 1 << 28;
  EXPECT_EQ(largeBlocks(kH200, Step::htDispatch, kBytes), kLargeMultiprocessors);
  EXPECT_EQ(largeBlocks(kH200, Step::combine, kBytes), kLargeMultiprocessors);
  for (const StepRow& row : kSteps.rows) {
    const Step step = row.step;
    if (row.computes()) continue;
    const LaunchShape copies = planLaunch(withLink(kNvlink4), {step, 4096, 4096, 14336, 0, false, kBytes}, true);
    const int counting = copies.countingBlock ? 1 : 0;
    EXPECT_EQ(copies.blocks, blocksWithCopies(step) + counting) << static_cast<int>(step);
  }
}

TEST(CudaPlan, LargeLlOperationsTakeAllUnlessAKernelBesideThemNeedsSome) {
  Workload work{Step::llCombine, 1024, 4096, 14336, 0};
  work.lowLatency = true;
  EXPECT_EQ(planLaunch(kH200, work, true).blocks, 132);
  work.sms = 48;
  EXPECT_EQ(planLaunch(kH200, work, true).blocks, 48);
  work.sms = 0;
  work.waitsForRows = true;
  EXPECT_EQ(planLaunch(kH200, work, true).blocks, kLargeMultiprocessors);
  work.step = Step::combineWavesCoded;
  work.lowLatency = false;
  EXPECT_EQ(planLaunch(kH200, work, true).blocks, kLargeMultiprocessors);
}

TEST(CudaPlan, ABlockOfASmallLlOperationHasATokenOrHalfOfOne) {
  const auto blocks = [](Step step, int tokens, int sms, std::uint32_t rowBytes) {
    Workload work{step, 512, tokens, rowBytes, sms, true};
    work.lowLatency = true;
    return planLaunch(kH200, work, true).blocks;
  };
  constexpr int kCounts = 1;
  EXPECT_EQ(blocks(Step::llRouteDispatch, 0, 0, 14336), 1 + kCounts);
  EXPECT_EQ(blocks(Step::llRouteDispatch, 1, 0, 14336), 2 + kCounts);
  EXPECT_EQ(blocks(Step::llRouteDispatch, 1, 0, 7168), 1 + kCounts);
  EXPECT_EQ(blocks(Step::llRouteDispatch, 32, 0, 14336), 64 + kCounts);
  EXPECT_EQ(blocks(Step::llRouteDispatch, 64, 0, 14336), 64 + kCounts);
  EXPECT_EQ(blocks(Step::llRouteDispatch, 512, 0, 14336), 132);
  EXPECT_EQ(blocks(Step::llRouteDispatch, 512, 16, 14336), 16);
  for (const Step step : {Step::llDispatch, Step::combine}) {
    EXPECT_EQ(blocks(step, 1, 0, 14336), 2);
    EXPECT_EQ(blocks(step, 8, 0, 14336), 16);
    EXPECT_EQ(blocks(step, 512, 0, 14336), 33);
  }
}

TEST(CudaPlan, AStepWhoseWarpsAreBlocksHasOneMoreAndTwoForARowWhileThereIsRoom) {
  for (const StepRow& row : kSteps.rows) {
    if (row.family != StepFamily::plain) continue;
    const auto blocks = [&](int tokens, int sms) {
      Workload work{row.step, 512, tokens, 14336, sms, true};
      work.lowLatency = true;
      return planLaunch(kH200, work, true).blocks;
    };
    EXPECT_EQ(blocks(0, 0), 1 + 1);
    EXPECT_EQ(blocks(1, 0), 2 + 1);
    EXPECT_EQ(blocks(64, 0), 128 + 1);
    EXPECT_EQ(blocks(128, 0), 128 + 1);
    EXPECT_EQ(blocks(512, 0), 132);
    EXPECT_EQ(blocks(512, 16), 16);
    EXPECT_EQ(blocks(512, 1), 1);
  }
}

TEST(CudaPlan, ABlockWithSeveralRowsHasMoreWarps) {
  for (const StepRow& row : kSteps.rows) {
    if (row.family != StepFamily::plain || row.codesPlainly() || row.warps < kSmallWarps) continue;
    const auto warps = [&](int rows, int sms) {
      Workload work{row.step, 512, rows, 14336, sms};
      work.lowLatency = true;
      return planLaunch(kH200, work, true).warpsPerBlock;
    };
    EXPECT_EQ(warps(2, 0), 8);
    EXPECT_EQ(warps(256, 0), 8);
    EXPECT_EQ(warps(512, 0), 16);
    EXPECT_EQ(warps(16, 16), 8);
    EXPECT_EQ(warps(64, 16), 16);
  }
}

TEST(CudaPlan, ABlockThatCodesWholeRowsHasMoreWarps) {
  for (const Step step : {Step::llSlotCoded, Step::llPlacedCoded}) {
    const auto warps = [&](int rows, bool whole) {
      Workload work{step, 512, rows, 7168, 0};
      work.lowLatency = true;
      work.wholeRows = whole;
      return planLaunch(kH200, work, true).warpsPerBlock;
    };
    EXPECT_EQ(warps(2, false), 8);
    EXPECT_EQ(warps(64, false), 8);  // two blocks share a row
    EXPECT_EQ(warps(128, false), 16);
    EXPECT_EQ(warps(2, true), 16);
  }
}

// Kernels for several domains may be made for fewer warps, as their code needs more registers.
TEST(CudaPlan, NoKernelGetsMoreWarpsThanItIsMadeFor) {
  for (const StepRow& row : kSteps.rows) {
    for (const bool split : {false, true}) {
      for (const int tokensMax : {128, 4096}) {
        for (const int major : {9, 10}) {
          GpuMachine machine = kH200;
          machine.major = major;
          Workload work{row.step, tokensMax, tokensMax, 14336, 0};
          work.lowLatency = true;
          work.split = split;
          const bool far = split && row.has(kFar);
          EXPECT_LE(planLaunch(machine, work, false).warpsPerBlock, plainWarpsMax(row, far, major))
              << row.name << " " << split << " " << tokensMax << " " << major;
        }
      }
    }
  }
}

TEST(CudaPlan, ADispatchThatRoutesHasOneMoreBlockThatCountsUnlessTheCallerAllowsNone) {
  const auto plan = [](Step step, int sms) {
    Workload work{step, 128, 8, 14336, sms, true};
    work.lowLatency = true;
    return planLaunch(kH200, work, true);
  };
  EXPECT_FALSE(plan(Step::llDispatch, 0).countingBlock);
  EXPECT_EQ(plan(Step::llRouteDispatch, 0).blocks, 2 * 8 + 1);
  EXPECT_TRUE(plan(Step::llRouteDispatch, 0).countingBlock);
  EXPECT_EQ(plan(Step::llRouteDispatch, 4).blocks, 4);
  EXPECT_EQ(plan(Step::llRouteDispatch, 1).blocks, 1);
  EXPECT_FALSE(plan(Step::llRouteDispatch, 1).countingBlock);
}

TEST(CudaPlan, WhatTheCallerAllowsIsWhatALargeOperationTakes) {
  for (const int sms : {1, 5, 24, 132}) {
    EXPECT_EQ(largeBlocks(withLink(kNvlink4), Step::htDispatch, 1 << 28, sms), sms);
    EXPECT_EQ(largeBlocks(kH200, Step::combine, 1, sms), sms);
  }
  EXPECT_EQ(largeBlocks(withLink(kNvlink4), Step::combine, 1, 1000), 132);
}

TEST(CudaPlan, StagesFitTheSharedMemoryOfABlock) {
  for (const Step step : {Step::htDispatch, Step::htCastWaves, Step::combineWaves}) {
    for (const std::uint32_t rowBytes : {1024u, 4096u, 10000u, 14336u}) {
      for (int warps = 1; warps <= bulkWarps(kH200, step, rowBytes); ++warps) {
        const WarpStages stages = warpStages(kH200, step, warps, rowBytes);
        EXPECT_EQ(stages.bytes % 128, 0u);
        EXPECT_GT(stages.bytes, 0u);
        EXPECT_LE(static_cast<std::size_t>(warps * stages.count) * stages.bytes + 128, bulkSharedBytesMax(kH200));
      }
    }
  }
  EXPECT_EQ(warpStages(kH200, Step::htDispatch, 8, 0).bytes, 7424u);
  const WarpStages ofCasts = warpStages(kH200, Step::htCastWaves, 8, 0);  // half of it stays cache
  EXPECT_EQ(ofCasts.bytes, kCastStageBytesMax + 0u);
  EXPECT_LE(8 * 3 * ofCasts.bytes + kStaticSharedBytes, kH200.sharedBytes * kCastSharedPercent / 100);
}

TEST(CudaPlan, SumsOfLongRowsHaveFewerWarpsAndLargerSlots) {
  struct Case {
    std::uint32_t rowBytes;
    int warps, slots;
    std::uint32_t slotBytes;
  };
  for (const Case& c : {Case{14336, 12, 4, 3584}, {12288, 12, 4, 3584}, {8192, 16, 6, 2048}, {1024, 16, 6, 2048}}) {
    const LaunchShape shape = planLaunch(kH200, {Step::combineWaves, 4096, 4096, c.rowBytes, 24}, true);
    EXPECT_EQ(shape.warpsPerBlock, c.warps) << c.rowBytes;
    const WarpStages stages = warpStages(kH200, Step::combineWaves, c.warps, c.rowBytes);
    EXPECT_EQ(stages.count, c.slots) << c.rowBytes;
    EXPECT_EQ(stages.bytes, c.slotBytes) << c.rowBytes;
  }
  EXPECT_EQ(warpStages(kH200, Step::combineWaves, 1, 14336).count, kSumSlotsMax);
  const GpuMachine small{132, 1, 101376};  // 99 KB, as some GPUs have
  const LaunchShape shape = planLaunch(small, {Step::combineWaves, 4096, 4096, 14336, 24}, true);
  EXPECT_EQ(shape.warpsPerBlock, 7);
  EXPECT_GE(warpStages(small, Step::combineWaves, shape.warpsPerBlock, 14336).count, kSumSlotsMin);
}

TEST(CudaPlan, SharesOfASumCoverARowAndFitASlot) {
  for (const std::uint32_t slot : {2048u, 3584u}) {
    for (const std::uint32_t bytes : {16u, 512u, 3584u, 3600u, 4096u, 8192u, 10240u, 14336u, 100000u}) {
      const std::uint32_t share = sumShare(bytes, slot);
      EXPECT_EQ(share % kSumPieceBytes, 0u) << bytes;
      EXPECT_LE(share, slot) << bytes;
      EXPECT_EQ((bytes + share - 1) / share, (bytes + slot - 1) / slot) << bytes;
    }
    EXPECT_EQ(sumShare(0, slot), 0u);
  }
}

TEST(CudaPlan, ALargeCombineSumsWhatBulkCopiesBring) {
  for (const Step step : {Step::combine, Step::combineWaves}) {
    Workload work{step, 4096, 4096, 14336, 24};
    EXPECT_TRUE(planLaunch(kH200, work, true).bulk);
    EXPECT_FALSE(planLaunch(kH200, work, false).bulk);
    EXPECT_FALSE(planLaunch(kH200, {step, 128, 128, 14336, 24}, true).bulk);
    work.lowLatency = true;
    EXPECT_FALSE(planLaunch(kH200, work, true).bulk);
  }
}

TEST(CudaPlan, OwnRowsGoStraightIfThereAreMany) {
  EXPECT_FALSE(planLaunch(kH200, {Step::llDispatch, kStraightTokensMin - 1, 8, 14336, 0}, true).straight);
  EXPECT_TRUE(planLaunch(kH200, {Step::llDispatch, kStraightTokensMin, 8, 14336, 0}, true).straight);
  EXPECT_TRUE(planLaunch(kH200, {Step::llDispatch, 4096, 8, 14336, 0}, true).straight);
}

TEST(CudaPlan, PartsCoverARowExactly) {
  for (std::uint32_t rowBytes : {16u, 528u, 4096u, 14336u, 1u << 20}) {
    for (int rows : {0, 1, 7, 128, 100000}) {
      const Parts parts = planParts({132, 8, false}, rows, rowBytes);
      EXPECT_EQ(parts.bytes % 16, 0u);
      EXPECT_LT(static_cast<std::uint64_t>(parts.count - 1) * parts.bytes, rowBytes);
      EXPECT_GE(static_cast<std::uint64_t>(parts.count) * parts.bytes, rowBytes);
      EXPECT_LE(parts.count, 64);
    }
  }
}

}  // namespace
}  // namespace moe::test
