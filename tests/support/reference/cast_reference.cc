#include "support/reference/cast_reference.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <limits>

#include "moecomm.h"
#include "support/reference/fp8_reference.h"
#include "support/reference/reference.h"

namespace moe::test {
namespace {

constexpr std::array<double, 8> kE2m1 = {0, 0.5, 1, 1.5, 2, 3, 4, 6};

bool isFourBits(int cast) {
  return cast == moeCastMxfp4 || cast == moeCastNvfp4;
}
bool hasFloatScales(int cast) {
  return cast == moeCastFp8 || cast == moeCastFp8Pow2;
}
double largestOf(int cast) {
  return isFourBits(cast) ? kE2m1.back() : 448;
}

// The nearest of the eight values; of two that are equally near, the one with the even code.
std::uint32_t nearestE2m1(double value) {
  const std::uint32_t sign = std::signbit(value) ? 8u : 0u;
  if (std::isnan(value)) return sign;
  const double magnitude = std::min(std::abs(value), kE2m1.back());
  std::uint32_t best = 0;
  for (std::uint32_t code = 1; code < kE2m1.size(); ++code) {
    const double now = std::abs(magnitude - kE2m1[code]), before = std::abs(magnitude - kE2m1[best]);
    if (now < before || (now == before && code % 2 == 0)) best = code;
  }
  return sign | best;
}

// The smallest power of two, from 2^-127 up, that is not below amax / largest.
int exponentFor(double amax, double largest) {
  int exponent = -127;
  while (std::ldexp(largest, exponent) < amax) ++exponent;
  return exponent;
}

struct Block {
  float inverse = 0;
  std::uint32_t scale = 0;  // bits of a float, or a byte
};

Block nanBlock(int cast) {
  return {0, cast == moeCastNvfp4 ? 0x7fu : 0xffu};
}

Block nvfp4Block(float amax, float globalScale) {
  const float wanted = globalScale * amax / 6.0f;
  const std::uint32_t code = nearestCode(std::isinf(wanted) ? 1e300 : wanted);
  return {code == 0 ? 0 : globalScale / static_cast<float>(valueOfCode(code)), code};
}

Block blockOf(const ReferenceRule& rule, float amax) {
  const float most = std::numeric_limits<float>::max();
  amax = std::min(amax, most);
  if (rule.cast == moeCastNvfp4) return nvfp4Block(amax, rule.globalScale);
  if (rule.cast <= moeCastFp8Pow2) amax = std::max(amax, rule.exact ? std::ldexp(448.0f, -126) : 1e-4f);
  if (rule.cast == moeCastFp8) return {448.0f / amax, std::bit_cast<std::uint32_t>(amax / 448.0f)};
  const int exponent = exponentFor(amax, largestOf(rule.cast));
  const float inverse = std::ldexp(1.0f, -exponent), scale = std::ldexp(1.0f, exponent);
  if (rule.cast == moeCastFp8Pow2) return {inverse, std::bit_cast<std::uint32_t>(scale)};
  return {inverse, static_cast<std::uint32_t>(exponent + 127)};
}

// The elements of a block as they are cast: times the input scale, in single precision.
std::vector<float> elementsOf(const ReferenceRule& rule, int rowType, const std::uint8_t* row, int first, int count) {
  std::vector<float> elements;
  const bool negative = std::signbit(rule.inputScale);
  for (int i = first; i < first + count; ++i) {
    const float given = decodeElement(rowType, row, i);
    elements.push_back(std::copysign(given * rule.inputScale, std::signbit(given) != negative ? -1.0f : 1.0f));
  }
  return elements;
}

double floatOf(std::uint32_t bits) {
  return std::bit_cast<float>(bits);
}

}  // namespace

ReferenceSizes referenceSizes(int cast, int elements) {
  const int block = cast <= moeCastFp8Pow2 ? 128 : cast == moeCastNvfp4 ? 16 : 32;
  const int scaleBytes = hasFloatScales(cast) ? 4 : 1, tiles = (elements + 511) / 512;
  const int codeBytes = isFourBits(cast) ? elements / 2 : elements;
  return {block, codeBytes, (elements / block * scaleBytes + 3) / 4,
          codeBytes + (tiles * (512 / block) * scaleBytes + 15) / 16 * 16};
}

double valueOfE2m1(std::uint32_t code) {
  return (code & 8u) != 0 ? -kE2m1[code & 7u] : kE2m1[code & 7u];
}

ReferenceCast referenceCast(const ReferenceRule& rule, int rowType, const std::uint8_t* row, int elements) {
  const ReferenceSizes sizes = referenceSizes(rule.cast, elements);
  ReferenceCast cast;
  cast.codes.assign(static_cast<std::size_t>(sizes.codeBytes), 0);
  cast.scales.assign(static_cast<std::size_t>(sizes.scaleWords), 0);
  const auto at = [](int index) { return static_cast<std::size_t>(index); };
  for (int first = 0; first < elements; first += sizes.block) {
    const std::vector<float> values = elementsOf(rule, rowType, row, first, sizes.block);
    float amax = 0;
    for (const float value : values) amax = std::max(amax, std::isnan(value) ? 0.0f : std::abs(value));
    const bool lost = std::any_of(values.begin(), values.end(), [](float value) { return std::isnan(value); });
    const Block block = lost && isFourBits(rule.cast) ? nanBlock(rule.cast) : blockOf(rule, amax);
    for (int i = 0; i < sizes.block; ++i) {
      const float value = values[at(i)];
      const float product = std::copysign(value * block.inverse, value);
      if (isFourBits(rule.cast)) {
        cast.codes[at((first + i) / 2)] |= static_cast<std::uint8_t>(nearestE2m1(product) << 4 * (i % 2));
      } else {
        cast.codes[at(first + i)] = static_cast<std::uint8_t>(nearestCode(product));
      }
    }
    const int number = first / sizes.block;
    if (hasFloatScales(rule.cast)) {
      cast.scales[at(number)] = block.scale;
    } else {
      cast.scales[at(number / 4)] |= block.scale << 8 * (number % 4);
    }
  }
  return cast;
}

std::vector<double> dequantised(const ReferenceRule& rule, const ReferenceCast& cast) {
  const bool four = isFourBits(rule.cast);
  const std::size_t elements = cast.codes.size() * (four ? 2 : 1);
  const auto block = static_cast<std::size_t>(referenceSizes(rule.cast, 0).block);
  std::vector<double> values;
  for (std::size_t i = 0; i < elements; ++i) {
    const std::uint32_t code = four ? cast.codes[i / 2] >> 4 * (i % 2) & 15u : cast.codes[i];
    const std::size_t number = i / block;
    const std::uint32_t byte = cast.scales[number / 4 % cast.scales.size()] >> 8 * (number % 4) & 255u;
    double scale = 0;
    if (hasFloatScales(rule.cast)) {
      scale = floatOf(cast.scales[number]);
    } else if (rule.cast == moeCastNvfp4) {
      scale = (byte == 0x7fu ? std::numeric_limits<double>::quiet_NaN() : valueOfCode(byte)) /
              static_cast<double>(rule.globalScale);
    } else {
      scale = byte == 0xffu ? std::numeric_limits<double>::quiet_NaN() : std::ldexp(1.0, static_cast<int>(byte) - 127);
    }
    const bool nan = !four && (code & 0x7fu) == 0x7fu;
    const double value = four ? valueOfE2m1(code) : nan ? std::numeric_limits<double>::quiet_NaN() : valueOfCode(code);
    values.push_back(value * scale);
  }
  return values;
}

}  // namespace moe::test
