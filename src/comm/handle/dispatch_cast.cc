#include <fmt/format.h>

#include <span>

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

void refuseOffsets(const std::int32_t* offsets, const char* why) {
  refuse(fmt::format("args.describe.outBlockOffsets is {}, but {}", fmt::ptr(offsets), why));
}

void checkNoScales(const moeCast_t& cast) {
  const char* none = "args.cast.type is none";
  if (cast.flags != 0) refuse(fmt::format("args.cast.flags is {}, but {}", cast.flags, none));
  refuseScale(cast.inputScale, "args.cast.inputScale", none);
  refuseScale(cast.globalScale, "args.cast.globalScale", none);
  if (cast.outScales == nullptr && cast.scaleLayout == 0) return;
  refuse(fmt::format("args.cast.outScales is {} and args.cast.scaleLayout {}, but {}", cast.outScales, cast.scaleLayout,
                     none));
}

void checkType(const moeDispatchArgs_t& args, const moeCast_t& cast) {
  if (cast.type < moeCastNone || cast.type > moeCastNvfp4) {
    refuse(fmt::format("args.cast.type is {}, must be a moeCast value", cast.type));
  }
  if ((cast.flags & ~(moeCastExact | moeWeightsOnInput)) != 0) {
    refuse(fmt::format("args.cast.flags is {}, must be made of moeCastExact and moeWeightsOnInput", cast.flags));
  }
  if (args.rowType == moeRowBytes) refuse("args.rowType is opaque bytes, which cannot be cast");
  if (args.hidden % kCastRowMultiple != 0) {
    refuse(
        fmt::format("args.hidden is {}, must be a multiple of {} with args.cast.type", args.hidden, kCastRowMultiple));
  }
}

void checkScales(const moeDispatchArgs_t& args, const moeCast_t& cast) {
  if (cast.scaleLayout < moeScalesRowMajor || cast.scaleLayout > moeScales128x4) {
    refuse(fmt::format("args.cast.scaleLayout is {}, must be a moeScales value", cast.scaleLayout));
  }
  if (cast.scaleLayout == moeScales128x4 && castScalesAreFloats(cast.type)) {
    refuse(
        fmt::format("args.cast.scaleLayout is {} (moeScales128x4), but a scale of args.cast.type {} has 4 bytes, "
                    "not one",
                    cast.scaleLayout, cast.type));
  }
  if (args.outRows != nullptr && cast.outScales == nullptr)
    refuse("args.cast.outScales is NULL with args.cast.type set");
  requireAligned(cast.outScales, "args.cast.outScales", sizeof(std::uint32_t));
  if (cast.type != moeCastNvfp4)
    refuseScale(cast.globalScale, "args.cast.globalScale", "args.cast.type is not moeCastNvfp4");
  requireAligned(cast.inputScale, "args.cast.inputScale", alignof(float));
  requireAligned(cast.globalScale, "args.cast.globalScale", alignof(float));
}

// The type, with the bit for small magnitudes if the caller wants it and the format has a lower bound that the bit
// lifts.
int typeOf(const moeCast_t& cast) {
  const bool bounded = castBlockElements(cast.type) == 128;
  return cast.type | (bounded && (cast.flags & moeCastExact) != 0 ? kCastExact : 0);
}

// Scales and payloads in blocks have the same offsets.
void checkBlockOffsets(const DispatchRequest& asked, Layout layout) {
  const std::int32_t* offsets = asked.describe.outBlockOffsets;
  if (offsets == nullptr) return;
  bool blocked = asked.cast.type != moeCastNone && asked.cast.scaleLayout == moeScales128x4;
  const auto payloads = std::span(asked.payloads).first(static_cast<std::size_t>(asked.args.payloadCount));
  for (const moePayload_t& payload : payloads) blocked = blocked || payload.outLayout == moeScales128x4;
  if (!blocked) refuseOffsets(offsets, "neither args.cast.scaleLayout nor a payload's outLayout is moeScales128x4");
  if (layout != Layout::expertMajor) refuseOffsets(offsets, "the layout is not EXPERT_MAJOR");
  requireAligned(offsets, "args.describe.outBlockOffsets", alignof(std::int32_t));
}

}  // namespace

CastArgs castArgs(const DispatchRequest& asked, const OutputGrid& grid) {
  const auto& [args, cast, describe, payloads] = asked;
  checkBlockOffsets(asked, grid.layout());
  if (cast.type == moeCastNone) {
    checkNoScales(cast);
    return {};
  }
  checkType(args, cast);
  checkScales(args, cast);
  CastArgs out{};
  out.type = typeOf(cast);
  out.rowType = args.rowType;
  out.elements = args.hidden;
  out.codeBytes = static_cast<std::uint32_t>(castCodeBytes(cast.type, args.hidden));
  out.inputScale = cast.inputScale;
  out.globalScale = cast.globalScale;
  out.outScales = static_cast<std::uint32_t*>(cast.outScales);
  out.outBlockOffsets = describe.outBlockOffsets;
  out.words = castScaleWords(cast.type, args.hidden);
  out.grid = grid.of(cast.scaleLayout, out.words);
  return out;
}

std::int64_t outScaleBytes(const DispatchRequest& asked, const OutputGrid& grid) {
  const moeCast_t& cast = asked.cast;
  if (cast.type == moeCastNone) return 0;
  const std::int64_t rowBytes = std::int64_t{castScaleWords(cast.type, asked.args.hidden)} * 4;
  return cast.scaleLayout == moeScales128x4 ? grid.blockedBytes(rowBytes) : grid.rows() * rowBytes;
}

}  // namespace moe
