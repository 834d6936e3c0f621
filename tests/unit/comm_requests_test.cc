// The optional structs that arguments point to: those of callers with another version of the header, and none.
#include <gtest/gtest.h>

#include <cstring>

#include "base/error.h"
#include "comm/handle/requests.h"

namespace moe {
namespace {

std::string refusalOf(const moeDispatchArgs_t& args) {
  try {
    const DispatchRequest asked(&args);
  } catch (const Error& error) {
    EXPECT_EQ(error.result(), moeInvalidArgument);
    return error.what();
  }
  return "";
}

// A struct of a caller whose header gives it `bytes` bytes. The part beyond our struct is filled with `tail`.
template <class T>
struct OfVersion {
  OfVersion(const T& own, std::size_t bytes, unsigned char tail = 0) {
    std::memset(memory, tail, sizeof memory);
    std::memcpy(memory, &own, std::min(bytes, sizeof own));
    std::memcpy(memory, &bytes, sizeof bytes);
  }
  const T* get() const { return reinterpret_cast<const T*>(memory); }

  alignas(T) unsigned char memory[2 * sizeof(T)];
};

TEST(Requests, StructsThatAreLeftOutAreAsTheirInitializers) {
  const moeDispatchArgs_t dispatch = MOE_DISPATCH_ARGS_INITIALIZER;
  const DispatchRequest asked(&dispatch);
  EXPECT_EQ(asked.cast.type, moeCastNone);
  EXPECT_EQ(asked.describe.outTopkIdx, nullptr);
  EXPECT_EQ(asked.describe.size, sizeof(moeDescribe_t));
  moeCombineArgs_t combine = MOE_COMBINE_ARGS_INITIALIZER;
  EXPECT_FALSE(CombineRequest(&combine).carriesGrads());
  const moeGrads_t none = MOE_GRADS_INITIALIZER;
  combine.grads = &none;
  EXPECT_TRUE(CombineRequest(&combine).carriesGrads());
}

TEST(Requests, AnOlderStructLacksItsLastFields) {
  float scale = 1;
  moeCast_t cast = MOE_CAST_INITIALIZER;
  cast.type = moeCastNvfp4;
  cast.inputScale = cast.globalScale = &scale;
  const OfVersion<moeCast_t> older(cast, offsetof(moeCast_t, globalScale));
  moeDispatchArgs_t args = MOE_DISPATCH_ARGS_INITIALIZER;
  args.cast = older.get();
  const DispatchRequest asked(&args);
  EXPECT_EQ(asked.cast.type, moeCastNvfp4);
  EXPECT_EQ(asked.cast.inputScale, &scale);
  EXPECT_EQ(asked.cast.globalScale, nullptr);
  EXPECT_EQ(asked.cast.size, sizeof(moeCast_t));
}

TEST(Requests, ANewerStructMayNotUseWhatIsUnknown) {
  const moeDescribe_t describe = MOE_DESCRIBE_INITIALIZER;
  const OfVersion<moeDescribe_t> plain(describe, sizeof describe + 16), uses(describe, sizeof describe + 16, 1);
  moeDispatchArgs_t args = MOE_DISPATCH_ARGS_INITIALIZER;
  args.describe = plain.get();
  EXPECT_EQ(refusalOf(args), "");
  args.describe = uses.get();
  EXPECT_NE(refusalOf(args).find("args.describe is newer than this library"), std::string::npos) << refusalOf(args);
  moeCast_t cast = MOE_CAST_INITIALIZER;
  cast.size = 0;
  args.describe = nullptr;
  args.cast = &cast;
  EXPECT_NE(refusalOf(args).find("args.cast.size is 0"), std::string::npos) << refusalOf(args);
}

// They are as far apart as the caller's header has made them.
TEST(Requests, PayloadsOfOtherSizesAreAnArrayToo) {
  for (const std::size_t bytes : {offsetof(moePayload_t, outWordStride), sizeof(moePayload_t) + 24}) {
    alignas(moePayload_t) unsigned char memory[4 * sizeof(moePayload_t)] = {};
    for (int i = 0; i < 2; ++i) {
      moePayload_t payload = MOE_PAYLOAD_INITIALIZER;
      payload.bytes = 4 + i;
      payload.outWordStride = 8;
      payload.size = bytes;
      std::memcpy(memory + static_cast<std::size_t>(i) * bytes, &payload, std::min(bytes, sizeof payload));
    }
    moeDispatchArgs_t args = MOE_DISPATCH_ARGS_INITIALIZER;
    args.payloads = reinterpret_cast<const moePayload_t*>(memory);
    args.payloadCount = 2;
    const DispatchRequest asked(&args);
    EXPECT_EQ(asked.payloads[0].bytes, 4);
    EXPECT_EQ(asked.payloads[1].bytes, 5);
    EXPECT_EQ(asked.payloads[1].outWordStride, bytes < sizeof(moePayload_t) ? 0 : 8);
    memory[bytes] = 8;  // the size of the second one
    EXPECT_NE(refusalOf(args).find("args.payloads[1].size is "), std::string::npos) << refusalOf(args);
  }
}

TEST(Requests, OfARefusalNoOptionalStructIsRead) {
  const auto* nowhere = reinterpret_cast<const void*>(std::uintptr_t{64});
  moeDispatchArgs_t dispatch = MOE_DISPATCH_ARGS_INITIALIZER;
  dispatch.flags = moeRefused;
  dispatch.payloadCount = 99;
  dispatch.cast = static_cast<const moeCast_t*>(nowhere);
  EXPECT_EQ(refusalOf(dispatch), "");
  moeCombineArgs_t combine = MOE_COMBINE_ARGS_INITIALIZER;
  combine.flags = moeRefused;
  combine.grads = static_cast<const moeGrads_t*>(nowhere);
  EXPECT_TRUE(CombineRequest(&combine).carriesGrads());
}

}  // namespace
}  // namespace moe
