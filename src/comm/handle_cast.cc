// The cast of a dispatch: checks its arguments and says where scales go.
#include <fmt/format.h>

#include "comm/handle.h"
#include "device/rows/fp8_row.h"

namespace moe {
namespace {

static_assert(int{kNoCast} == int{moeCastNone} && int{kCastFp8} == int{moeCastFp8} &&
              int{kCastFp8Ue8m0} == int{moeCastFp8Ue8m0} && kCastExact == int{moeCastExact});

void refuse(const std::string& why) {
  throw Error(moeInvalidArgument, why);
}

void checkNoScales(const moeDispatchArgs_t& args) {
  if ((args.flags & moeCastExact) != 0) refuse("args.flags has moeCastExact, but args.cast is none");
  if (args.outScales == nullptr && args.scaleLayout == 0) return;
  refuse(fmt::format("args.outScales is {} and args.scaleLayout {}, but args.cast is none", args.outScales,
                     args.scaleLayout));
}

void checkCast(const moeDispatchArgs_t& args, bool lowLatency) {
  if (args.cast < moeCastNone || args.cast > moeCastFp8Ue8m0) {
    refuse(fmt::format("args.cast is {}, must be a moeCast value", args.cast));
  }
  if (!lowLatency) {
    refuse(fmt::format("args.cast is {}, which is for LL: in HT pass rows that are quantised, and scales as args.side",
                       args.cast));
  }
  if (args.rowType == moeRowBytes) refuse("args.rowType is opaque bytes, which cannot be cast");
  if (args.hidden % kFp8BlockElements != 0) {
    refuse(fmt::format("args.hidden is {}, must be a multiple of {} with args.cast", args.hidden, kFp8BlockElements));
  }
  if (args.scaleLayout != moeScalesRowMajor && args.scaleLayout != moeScalesTokenContiguous) {
    refuse(fmt::format("args.scaleLayout is {}, must be a moeScales value", args.scaleLayout));
  }
  if (args.outRows != nullptr && args.outScales == nullptr) refuse("args.outScales is NULL with args.cast set");
  if (reinterpret_cast<std::uintptr_t>(args.outScales) % sizeof(std::uint32_t) != 0) {
    refuse(fmt::format("args.outScales is {}, not aligned to 4 bytes", args.outScales));
  }
}

}  // namespace

CastArgs Handle::castArgs(const Call& call, const moeDispatchArgs_t& args) const {
  if (args.cast == moeCastNone) {
    checkNoScales(args);
    return {};
  }
  checkCast(args, lowLatency());
  const int words = castScaleWords(args.cast, args.hidden);
  CastArgs out{args.cast | (args.flags & moeCastExact),
               args.rowType,
               args.hidden,
               static_cast<std::uint32_t*>(args.outScales),
               words,
               INT32_MAX,
               0,
               words,
               1};
  if (args.scaleLayout == moeScalesRowMajor) return out;
  const bool fixed = shape_.layout == Layout::rankMajor || shape_.layout == Layout::expertMajorPadded;
  const std::int64_t rows = fixed ? std::int64_t{comm_.shape().nranks} * call.bound : args.outRowsMax;
  out.rowStride = 1;
  out.wordStride = rows;
  if (shape_.layout != Layout::expertMajorPadded) return out;
  out.group = static_cast<int>(rows);
  out.groupStride = words * rows;
  return out;
}

}  // namespace moe
