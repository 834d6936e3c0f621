#include <gtest/gtest.h>

#include "backend/cuda_plan.h"

namespace moe::test {
namespace {

constexpr GpuMachine kH200{132, 1, 232448};

TEST(CudaPlan, AllBlocksOfAllRanksOnAGpuFitAtOnce) {
  for (int sharers : {1, 2, 4, 9, 200}) {
    GpuMachine machine = kH200;
    machine.sharers = sharers;
    for (const Step step : kSteps) {
      for (int items : {0, 1, 128, 4096, 1 << 20}) {
        const LaunchShape shape = planLaunch(machine, {step, items, items, 14336, 0}, true);
        EXPECT_GE(shape.blocks, 1);
        EXPECT_GE(shape.warpsPerBlock, 1);
        const int warpsMax = shape.bulk            ? kBulkWarpsMax
                             : step == Step::route ? kRouteWarpsPerBlock
                                                   : kernelWarpsMax(step);
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

TEST(CudaPlan, StagesFitTheSharedMemoryOfABlock) {
  for (int warps : {8, 16}) {
    const std::uint32_t stage = bulkStageBytes(kH200, warps);
    EXPECT_EQ(stage % 128, 0u);
    EXPECT_GT(stage, 0u);
    EXPECT_LE(static_cast<std::size_t>(warps * kBulkStages) * stage + 128, bulkSharedBytesMax(kH200));
  }
  EXPECT_EQ(bulkStageBytes(kH200, 8), 7168u);
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
