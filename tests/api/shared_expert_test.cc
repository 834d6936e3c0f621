// A shared expert by a localOnly handle in front: decision 0090.
#include <cstring>

#include "support/api/refusal_calls.h"

namespace moe::test {
namespace {

class SharedExpert : public Refusal {};

constexpr int kElements = 128, kFront = 16;  // elements of a row; rows of group 0, with alignment
constexpr int kScaleBytes = 4;

// Group 0 and the groups of the dispatch behind it, in one buffer of codes and one of scales.
struct Groups {
  std::uint8_t* codes;
  std::uint8_t* scales;
};

DispatchFields argsOf(const void* rows, const Groups& groups, int firstRow, std::int64_t room) {
  DispatchFields args;
  args.rows = rows;
  args.rowType = moeRowBf16;
  args.hidden = kElements;
  args.cast.type = moeCastFp8;
  args.outRows = groups.codes + std::int64_t{firstRow} * kElements;
  args.cast.outScales = groups.scales + std::int64_t{firstRow} * kScaleBytes;
  args.outRowsMax = room;
  return args;
}

// Each token goes to one expert of its own rank, so all rows of the other groups are known too.
TEST_P(SharedExpert, HasItsRowsInFrontAndItsSumsInTheCombine) {
  for (const int mode : {moeModeHt, moeModeLl}) {
    world(2, small(), [&](RankContext& context) {
      moeHandleConfig_t config = handleOf(mode, moeLayoutExpertMajor), own = handleOf(mode, moeLayoutFlat);
      config.topk = own.topk = 1;
      own.experts = context.nranks;
      own.localOnly = 1;
      moeHandle_t handle = nullptr, shared = nullptr;
      MOE_ASSERT_OK(moeHandleCreate(&handle, context.comm, &config), context);
      MOE_ASSERT_OK(moeHandleCreate(&shared, context.comm, &own), context);
      Arena& arena = context.arena;
      std::vector<std::uint8_t> rows(kTokens * kElements * 2);
      for (int i = 0; i < kTokens * kElements; ++i)
        encodeElement(moeRowBf16, static_cast<float>(i % 97) - 40.0f + static_cast<float>(context.rank), rows.data(),
                      i);
      const std::vector<std::int32_t> routed(kTokens, 2 * context.rank), ownExpert(kTokens, context.rank);
      const std::vector<float> sharedSums(kTokens * kElements, 5.0f), expertRows(kTokens * kElements, 2.0f);
      const auto* rowsThere = arena.put<std::uint8_t>(rows);
      const Groups groups{static_cast<std::uint8_t*>(arena.take((kFront + kTokens) * kElements)),
                          static_cast<std::uint8_t*>(arena.take((kFront + kTokens) * kScaleBytes))};
      DispatchFields front = argsOf(rowsThere, groups, 0, kTokens);
      DispatchFields others = argsOf(rowsThere, groups, kFront, kTokens);
      context.meet();
      MOE_EXPECT_OK(moeRouteDispatch(shared, arena.put<std::int32_t>(ownExpert), nullptr, kTokens, front.linked(),
                                     context.stream()),
                    context);
      MOE_EXPECT_OK(moeRouteDispatch(handle, arena.put<std::int32_t>(routed), nullptr, kTokens, others.linked(),
                                     context.stream()),
                    context);
      const auto codes = arena.get(groups.codes, (kFront + kTokens) * kElements);
      const auto scales = arena.get(groups.scales, (kFront + kTokens) * kScaleBytes);
      EXPECT_EQ(std::memcmp(codes.data(), codes.data() + kFront * kElements, kTokens * kElements), 0);
      EXPECT_EQ(std::memcmp(scales.data(), scales.data() + kFront * kScaleBytes, kTokens * kScaleBytes), 0);
      EXPECT_NE(codes[0], codes[kElements - 1]);

      moeCombineArgs_t args = MOE_COMBINE_ARGS_INITIALIZER;
      args.rows = arena.put<float>(expertRows);
      args.rowType = moeRowFp32;
      args.hidden = kElements;
      args.bias0 = arena.put<float>(sharedSums);
      args.out = arena.take(kTokens * kElements * 4);
      MOE_EXPECT_OK(moeCombine(handle, &args, context.stream()), context);
      for (const float sum : arena.get(static_cast<float*>(args.out), kTokens * kElements)) ASSERT_EQ(sum, 7.0f);
      context.meet();
      MOE_EXPECT_OK(moeHandleDestroy(shared), context);
      MOE_EXPECT_OK(moeHandleDestroy(handle), context);
    });
  }
}

MOE_INSTANTIATE_BACKENDS(SharedExpert);

}  // namespace
}  // namespace moe::test
