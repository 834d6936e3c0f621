// The cast of a dispatch: checks its arguments and says where scales go.
#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "comm/handle/argument_checks.h"
#include "comm/handle/handle.h"
#include "device/rows/cast_type.h"

namespace moe {
namespace {

static_assert(int{kNoCast} == int{moeCastNone} && int{kCastFp8} == int{moeCastFp8} &&
              int{kCastFp8Ue8m0} == int{moeCastFp8Ue8m0} && int{kCastFp8Pow2} == int{moeCastFp8Pow2} &&
              int{kCastMxfp8} == int{moeCastMxfp8} && int{kCastMxfp4} == int{moeCastMxfp4} &&
              int{kCastNvfp4} == int{moeCastNvfp4});

void refuse(const std::string& why) {
  throw Error(moeInvalidArgument, why);
}

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

}  // namespace

CastArgs Handle::castArgs(const Call& call, const moeDispatchArgs_t& args) const {
  checkBlockOffsets(args);
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
  if ((args.flags & moeWeightsOnInput) != 0) out.rowWeights = rowWeights(call);
  out.outScales = static_cast<std::uint32_t*>(args.outScales);
  out.outScaleBlockOffsets = args.outScaleBlockOffsets;
  out.words = castScaleWords(args.cast, args.hidden);
  out.grid = args.scaleLayout == moeScales128x4 ? blockedGrid(call, out.words)
                                                : wordGrid(call, args.outRowsMax, args.scaleLayout, out.words);
  return out;
}

// Scales and payloads in blocks have the same offsets.
void Handle::checkBlockOffsets(const moeDispatchArgs_t& args) const {
  if (args.outScaleBlockOffsets == nullptr) return;
  bool blocked = args.cast != moeCastNone && args.scaleLayout == moeScales128x4;
  for (int i = 0; i < args.payloadCount; ++i) blocked = blocked || args.payloads[i].outLayout == moeScales128x4;
  if (!blocked) refuseOffsets(args, "neither args.scaleLayout nor a payload's outLayout is moeScales128x4");
  if (shape_.layout != Layout::expertMajor) refuseOffsets(args, "the layout is not EXPERT_MAJOR");
  requireAligned(args.outScaleBlockOffsets, "args.outScaleBlockOffsets", alignof(std::int32_t));
}

// A step that routes keeps the route's weights while it casts, so it reads the caller's.
const float* Handle::rowWeights(const Call& call) const {
  if (shape_.topk != 1) {
    refuse(fmt::format("args.flags has moeWeightsOnInput, but config.topk is {}, must be 1: a row has one weight",
                       shape_.topk));
  }
  return call.route != nullptr && routesInDispatch_ ? call.route->topkWeights : view_.sent.weights;
}

ScaleGrid Handle::wordGrid(const Call& call, std::int64_t outRowsMax, int layout, int words) const {
  if (layout == moeScalesRowMajor) return {INT32_MAX, 0, 0, 0, 0, words, 1};
  const bool fixed = shape_.layout == Layout::rankMajor || shape_.layout == Layout::expertMajorPadded;
  const std::int64_t rows = fixed ? std::int64_t{room_.shape.nranks} * call.bound : outRowsMax;
  if (shape_.layout != Layout::expertMajorPadded) return {INT32_MAX, 0, 0, 0, 0, 1, rows};
  return {static_cast<int>(rows), 0, 0, 0, words * rows, 1, rows};
}

// Each group of rows has blocks of its own.
ScaleGrid Handle::blockedGrid(const Call& call, int words) const {
  ScaleGrid grid{INT32_MAX, 1, 0, 0, 0, std::int64_t{words} * kScaleColumnWords, kScaleColumnWords};
  if (shape_.layout == Layout::expertMajor) {
    grid.experts = shape_.map.count(room_.view.rank);
    grid.slack = kScaleBlockRows - std::gcd(shape_.alignment, kScaleBlockRows);
  } else if (shape_.layout != Layout::flat) {
    grid.group = shape_.layout == Layout::rankMajor ? call.bound : room_.shape.nranks * call.bound;
    grid.groupStride = scaleBlocks(grid.group) * grid.rowStride;
  }
  return grid;
}

std::int64_t Handle::outScaleBytes(const Call& call, const moeDispatchArgs_t& args) const {
  if (args.cast == moeCastNone) return 0;
  const std::int64_t rows = std::min<std::int64_t>(args.outRowsMax, INT32_MAX);
  const std::int64_t rowBytes = std::int64_t{castScaleWords(args.cast, args.hidden)} * 4;
  return args.scaleLayout == moeScales128x4 ? blockedBytes(call, rows, rowBytes) : rows * rowBytes;
}

// In an output with room for `rows` rows, `rowBytes` of each.
std::int64_t Handle::blockedBytes(const Call& call, std::int64_t rows, std::int64_t rowBytes) const {
  const ScaleGrid grid = blockedGrid(call, 1);
  std::int64_t blocks = scaleBlocks(rows);
  if (shape_.layout == Layout::expertMajor) {
    blocks = (rows + std::int64_t{grid.slack} * grid.experts) / kScaleBlockRows;
  } else if (shape_.layout != Layout::flat) {
    const int groups = shape_.layout == Layout::rankMajor ? room_.view.nranks : shape_.map.count(room_.view.rank);
    blocks = groups * scaleBlocks(grid.group);
  }
  return blocks * kScaleBlockRows * rowBytes;
}

}  // namespace moe
