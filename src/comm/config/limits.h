// The library's limits for any configuration. moeGetLimits reports them, config.cc enforces them.
#pragma once

#include <cstdint>

#include "device/view/shape.h"

namespace moe {

struct Limits {
  static constexpr std::int32_t kRanks = 1024;
  static constexpr std::int32_t kTopk = kTopkMax;
  static constexpr std::int32_t kExperts = 65535;
  static constexpr std::int32_t kTokens = 1 << 20;    // HT, per rank and call
  static constexpr std::int32_t kLlTokens = 1 << 13;  // LL, per rank and call
  static constexpr std::int32_t kRowAlignment = moe::kRowAlignment;
  static constexpr std::int32_t kRowBytes = 1 << 20;
  static constexpr std::int32_t kSideBytes = 1 << 16;
  static constexpr std::int32_t kTimeoutMs = 24 * 60 * 60 * 1000;
  static constexpr std::int32_t kSms = 1024;
  static constexpr std::int64_t kArrivingRows = (1 << 24) - 1;  // times the parts of a row this fits 31 bits: planParts
  static constexpr std::int64_t kHeapBytes = std::int64_t{1} << 46;
};

}  // namespace moe
