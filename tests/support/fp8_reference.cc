#include "support/fp8_reference.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "support/reference.h"

namespace moe::test {
namespace {

constexpr int kBlock = 128;

struct Scale {
  float scale, inverse;
  std::uint32_t exponent;  // biased
};

Scale scaleOf(float amax, bool power, bool exact) {
  const float least = exact ? std::ldexp(448.0f, -126) : 1e-4f;
  const float clamped = std::clamp(amax, least, 0x1.fffffep127f);
  if (!power) return {clamped / 448.0f, 448.0f / clamped, 0};
  const int exponent = static_cast<int>(std::ceil(std::log2(static_cast<double>(clamped) / 448)));
  return {std::ldexp(1.0f, exponent), std::ldexp(1.0f, -exponent), static_cast<std::uint32_t>(exponent + 127)};
}

}  // namespace

double valueOfCode(std::uint32_t code) {
  const int exponent = static_cast<int>(code >> 3 & 15), mantissa = static_cast<int>(code & 7);
  const double magnitude = exponent == 0 ? std::ldexp(mantissa, -9) : std::ldexp(8 + mantissa, exponent - 10);
  return (code & 0x80u) != 0 ? -magnitude : magnitude;
}

std::uint32_t nearestCode(double value) {
  static const std::vector<double> magnitudes = [] {
    std::vector<double> all;
    for (std::uint32_t code = 0; code < 0x7fu; ++code) all.push_back(valueOfCode(code));
    return all;
  }();
  const std::uint32_t sign = std::signbit(value) ? 0x80u : 0u;
  if (std::isnan(value)) return sign | 0x7fu;
  const double magnitude = std::min(std::abs(value), magnitudes.back());
  const auto above =
      static_cast<std::size_t>(std::lower_bound(magnitudes.begin(), magnitudes.end(), magnitude) - magnitudes.begin());
  if (above == 0) return sign;
  const double up = magnitudes[above] - magnitude, down = magnitude - magnitudes[above - 1];
  const bool takesUpper = up < down || (up == down && above % 2 == 0);
  return sign | static_cast<std::uint32_t>(takesUpper ? above : above - 1);
}

ReferenceCast referenceCast(int rowType, bool power, const std::uint8_t* row, int elements, bool exact) {
  ReferenceCast cast;
  const int blocks = elements / kBlock;
  cast.scales.assign(static_cast<std::size_t>(power ? (blocks + 3) / 4 : blocks), 0);
  for (int block = 0; block < blocks; ++block) {
    float amax = 0;
    for (int i = 0; i < kBlock; ++i) amax = std::max(amax, std::abs(decodeElement(rowType, row, block * kBlock + i)));
    const Scale scale = scaleOf(amax, power, exact);
    for (int i = 0; i < kBlock; ++i) {
      const float product = decodeElement(rowType, row, block * kBlock + i) * scale.inverse;
      cast.codes.push_back(static_cast<std::uint8_t>(nearestCode(product)));
    }
    const auto at = static_cast<std::size_t>(block);
    if (power) {
      cast.scales[at / 4] |= scale.exponent << 8 * (at % 4);
    } else {
      cast.scales[at] = std::bit_cast<std::uint32_t>(scale.scale);
    }
  }
  return cast;
}

}  // namespace moe::test
