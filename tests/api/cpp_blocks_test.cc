// Scales in blocks of 128 rows, through moecomm.hpp: the sizes that arrays need, and their content.
#include <cstdint>

#include "support/api/cpp_world.h"

namespace moe::test {
namespace {

// One rank sends one row, of elements 2, to the second of its three experts.
class CppBlocks {
 public:
  CppBlocks(const moecomm::Communicator& comm, int layout, int alignment = 1) {
    moecomm::HandleConfig shape(3, 1, layout);
    shape.mode = moeModeLl;
    shape.tokensMax = 2;
    shape.expertAlignment = alignment;
    handle_ = moecomm::Handle(comm, shape);
    handle_.route({std::vector<std::int32_t>{1}});
  }

  // `given`: words of outScales.
  void dispatch(std::size_t given, const std::vector<std::int32_t>& offsets = {}) {
    moecomm::DispatchArgs args;
    args.setCastRows(moeCastNvfp4, row_, codes_, moecomm::Span(scales).first(given), 128, moeScales128x4);
    blockOffsets = offsets;
    if (!offsets.empty()) args.setOutBlockOffsets(blockOffsets);
    handle_.dispatch(args);
  }
  void refuses(std::size_t given, const char* sentence, const std::vector<std::int32_t>& offsets = {}) {
    expectError(moeInvalidArgument, sentence, [&] { dispatch(given, offsets); });
  }

  std::vector<std::uint32_t> scales = std::vector<std::uint32_t>(1024, 7);
  std::vector<std::int32_t> blockOffsets;

 private:
  moecomm::Handle handle_;
  std::vector<float> row_ = std::vector<float>(128, 2.0f);
  std::vector<std::uint8_t> codes_ = std::vector<std::uint8_t>(std::size_t{256} * 64);
};

TEST(CppBlocks, HaveAsManyScalesAsTheLayoutNeeds) {
  cppWorld(1, cppConfig(), [](moecomm::Communicator& comm, int) {
    CppBlocks(comm, moeLayoutFlat)
        .refuses(511, "args.cast.outScales has 511 elements, must have [blocks][words][128] = [2]");
    CppBlocks(comm, moeLayoutRankMajor).refuses(255, "= [1][2][128]");
    CppBlocks(comm, moeLayoutExpertMajorPadded).refuses(767, "= [3][2][128]");
    CppBlocks(comm, moeLayoutExpertMajor).refuses(1023, "= [4][2][128]");
    CppBlocks(comm, moeLayoutExpertMajor, 32).refuses(1023, "= [4][2][128]");
    CppBlocks(comm, moeLayoutExpertMajor, 128).refuses(511, "= [2][2][128]");
    CppBlocks(comm, moeLayoutExpertMajor)
        .refuses(1024, "args.describe.outBlockOffsets has 3 elements, must have [localExperts + 1] = [4]", {7, 7, 7});
  });
}

TEST(CppBlocks, HoldTheRowAndZeros) {
  constexpr std::uint32_t kScales = 0x2b2b2b2bu;  // four times 2 / 6, as e4m3
  constexpr std::size_t kLastRow = 31 * 4 + 3;    // its word in a column
  cppWorld(1, cppConfig(), [&](moecomm::Communicator& comm, int) {
    CppBlocks step(comm, moeLayoutExpertMajor);
    step.dispatch(1024, {7, 7, 7, 7});
    EXPECT_EQ(step.blockOffsets, (std::vector<std::int32_t>{0, 0, 1, 2})) << "(offset + e * 127) / 128";
    for (std::size_t column = 0; column < 2; ++column) {
      EXPECT_EQ(step.scales[column * 128], kScales);
      EXPECT_EQ(step.scales[column * 128 + 1], 0u) << "row 32";
      EXPECT_EQ(step.scales[column * 128 + kLastRow], 0u);
    }
    EXPECT_EQ(step.scales[256], 7u) << "a block without rows";
    CppBlocks aligned(comm, moeLayoutExpertMajor, 128);
    aligned.dispatch(1024, {7, 7, 7, 7});
    EXPECT_EQ(aligned.blockOffsets, (std::vector<std::int32_t>{0, 0, 1, 1})) << "those of the experts, / 128";
    EXPECT_EQ(aligned.scales[0], kScales);
  });
}

}  // namespace
}  // namespace moe::test
