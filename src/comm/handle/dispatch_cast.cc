#include <fmt/format.h>

#include "comm/handle/call_checks.h"
#include "comm/handle/dispatch_call.h"
#include "device/rows/cast_type.h"

namespace moe {
namespace {

static_assert(int{kNoCast} == int{moeCastNone} && int{kCastFp8} == int{moeCastFp8} &&
              int{kCastFp8Ue8m0} == int{moeCastFp8Ue8m0} && int{kCastFp8Pow2} == int{moeCastFp8Pow2} &&
              int{kCastMxfp8} == int{moeCastMxfp8} && int{kCastMxfp4} == int{moeCastMxfp4} &&
              int{kCastNvfp4} == int{moeCastNvfp4});

void refuseScale(const float* pointer, const char* name, const char* why) {
  if (pointer != nullptr) refuse(fmt::format("{} is {}, but {}", name, fmt::ptr(pointer), why));
}

void refuseOffsets(const moeDispatchArgs_t& args, const char* why) {
  if (args.outScaleBlockOffsets == nullptr) return;
  refuse(fmt::format("args.outScaleBlockOffsets is {}, but {}", fmt::ptr(args.outScaleBlockOffsets), why));
}

void checkNoScales(const moeDispatchArgs_t& args) {
  if ((args.flags & moeCastExact) != 0) refuse("args.flags has moeCastExact, but args.cast is none");
  if ((args.flags & moeWeightsOnInput) != 0)
    refuse("args.flags has moeWeightsOnInput, but args.cast is none: rows are multiplied where they are cast");
  refuseScale(args.inputScale, "args.inputScale", "args.cast is none");
  refuseScale(args.globalScale, "args.globalScale", "args.cast is none");
  if (args.outScales == nullptr && args.scaleLayout == 0) return;
  refuse(fmt::format("args.outScales is {} and args.scaleLayout {}, but args.cast is none", args.outScales,
                     args.scaleLayout));
}

void checkCast(const moeDispatchArgs_t& args) {
  if (args.cast < moeCastNone || args.cast > moeCastNvfp4) {
    refuse(fmt::format("args.cast is {}, must be a moeCast value", args.cast));
  }
  if (args.rowType == moeRowBytes) refuse("args.rowType is opaque bytes, which cannot be cast");
  if (args.hidden % kCastRowMultiple != 0) {
    refuse(fmt::format("args.hidden is {}, must be a multiple of {} with args.cast", args.hidden, kCastRowMultiple));
  }
  if (args.scaleLayout < moeScalesRowMajor || args.scaleLayout > moeScales128x4) {
    refuse(fmt::format("args.scaleLayout is {}, must be a moeScales value", args.scaleLayout));
  }
  if (args.scaleLayout == moeScales128x4 && castScalesAreFloats(args.cast)) {
    refuse(fmt::format("args.scaleLayout is {} (moeScales128x4), but a scale of args.cast {} has 4 bytes, not one",
                       args.scaleLayout, args.cast));
  }
  if (args.outRows != nullptr && args.outScales == nullptr) refuse("args.outScales is NULL with args.cast set");
  requireAligned(args.outScales, "args.outScales", sizeof(std::uint32_t));
  if (args.cast != moeCastNvfp4) refuseScale(args.globalScale, "args.globalScale", "args.cast is not moeCastNvfp4");
  requireAligned(args.inputScale, "args.inputScale", alignof(float));
  requireAligned(args.globalScale, "args.globalScale", alignof(float));
}

// With the bit for small magnitudes, where the format has a bound that it takes away.
int castOf(const moeDispatchArgs_t& args) {
  const bool bounded = castBlockElements(args.cast) == 128;
  return args.cast | (bounded && (args.flags & moeCastExact) != 0 ? kCastExact : 0);
}

// Scales and payloads in blocks have the same offsets.
void checkBlockOffsets(const moeDispatchArgs_t& args, Layout layout) {
  if (args.outScaleBlockOffsets == nullptr) return;
  bool blocked = args.cast != moeCastNone && args.scaleLayout == moeScales128x4;
  for (int i = 0; i < args.payloadCount; ++i) blocked = blocked || args.payloads[i].outLayout == moeScales128x4;
  if (!blocked) refuseOffsets(args, "neither args.scaleLayout nor a payload's outLayout is moeScales128x4");
  if (layout != Layout::expertMajor) refuseOffsets(args, "the layout is not EXPERT_MAJOR");
  requireAligned(args.outScaleBlockOffsets, "args.outScaleBlockOffsets", alignof(std::int32_t));
}

}  // namespace

CastArgs castArgs(const moeDispatchArgs_t& args, const OutputGrid& grid) {
  checkBlockOffsets(args, grid.layout());
  if (args.cast == moeCastNone) {
    checkNoScales(args);
    return {};
  }
  checkCast(args);
  CastArgs out{};
  out.type = castOf(args);
  out.rowType = args.rowType;
  out.elements = args.hidden;
  out.codeBytes = static_cast<std::uint32_t>(castCodeBytes(args.cast, args.hidden));
  out.inputScale = args.inputScale;
  out.globalScale = args.globalScale;
  out.outScales = static_cast<std::uint32_t*>(args.outScales);
  out.outScaleBlockOffsets = args.outScaleBlockOffsets;
  out.words = castScaleWords(args.cast, args.hidden);
  out.grid = grid.of(args.scaleLayout, out.words);
  return out;
}

std::int64_t outScaleBytes(const moeDispatchArgs_t& args, const OutputGrid& grid) {
  if (args.cast == moeCastNone) return 0;
  const std::int64_t rowBytes = std::int64_t{castScaleWords(args.cast, args.hidden)} * 4;
  return args.scaleLayout == moeScales128x4 ? grid.blockedBytes(rowBytes) : grid.rows() * rowBytes;
}

}  // namespace moe
