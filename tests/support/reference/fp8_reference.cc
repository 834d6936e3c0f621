#include "support/reference/fp8_reference.h"

#include <algorithm>
#include <cmath>
#include <vector>

namespace moe::test {
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

}  // namespace moe::test
