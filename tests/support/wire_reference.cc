#include "support/wire_reference.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "moecomm.h"
#include "support/cast_reference.h"
#include "support/fp8_reference.h"
#include "support/reference.h"

namespace moe::test {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

std::size_t padded(std::size_t bytes) {
  return (bytes + 15) / 16 * 16;
}

float valueOfE4m3(std::uint32_t code) {
  return (code & 0x7fu) == 0x7fu ? kNan : static_cast<float>(valueOfCode(code));
}

float product(float a, float b) {
  volatile float result = a * b;
  return result;
}

// Of a row whose largest number is `amax`: the float that travels, and the global scale of its blocks.
struct Factor {
  float row, global;
};
Factor factorOf(const std::vector<float>& sums) {
  float amax = std::ldexp(6.0f * 448.0f, -126);
  for (const float x : sums) amax = std::isnan(x) ? amax : std::max(amax, std::abs(x));
  amax = std::min(amax, std::numeric_limits<float>::max());
  return {amax / 2688.0f, 2688.0f / amax};
}

ReferenceCast castOf(int cast, float global, const std::vector<float>& sums) {
  const ReferenceRule rule{cast, true, 1.0f, global};
  const auto* row = reinterpret_cast<const std::uint8_t*>(sums.data());
  return referenceCast(rule, kFp32, row, static_cast<int>(sums.size()));
}

// Codes of one byte. A NaN has no sign.
std::uint8_t wireE4m3(std::uint8_t code) {
  return code == 0xff ? 0x7f : code;
}
// Two codes in a byte: without a negative zero, and with other magnitude bits.
std::uint8_t wireE2m1(std::uint8_t codes) {
  std::uint32_t byte = 0;
  for (int half = 0; half < 2; ++half) {
    const std::uint32_t code = codes >> 4 * half & 15u;
    byte |= (code == 8 ? 7u : code ^ 7u) << 4 * half;
  }
  return static_cast<std::uint8_t>(byte);
}

ReferenceWire directRow(const std::vector<float>& sums) {
  ReferenceWire row;
  for (const float x : sums) {
    row.bytes.push_back(wireE4m3(static_cast<std::uint8_t>(nearestCode(x))));
    row.values.push_back(valueOfE4m3(row.bytes.back()));
  }
  return row;
}

ReferenceWire blockRow(const std::vector<float>& sums) {
  const ReferenceCast cast = castOf(moeCastFp8, 1.0f, sums);
  ReferenceWire row;
  for (std::size_t i = 0; i < sums.size(); ++i) {
    row.bytes.push_back(wireE4m3(cast.codes[i]));
    row.values.push_back(product(valueOfE4m3(row.bytes[i]), std::bit_cast<float>(cast.scales[i / 128])));
  }
  row.bytes.resize(sums.size() + padded(cast.scales.size() * 4));
  std::memcpy(row.bytes.data() + sums.size(), cast.scales.data(), cast.scales.size() * 4);
  return row;
}

ReferenceWire nvfp4Row(const std::vector<float>& sums) {
  const Factor factor = factorOf(sums);
  const ReferenceCast cast = castOf(moeCastNvfp4, factor.global, sums);
  ReferenceWire row;
  for (const std::uint8_t codes : cast.codes) row.bytes.push_back(wireE2m1(codes));
  for (std::size_t i = 0; i < sums.size(); ++i) {
    const std::uint32_t scale = cast.scales[i / 64] >> 8 * (i / 16 % 4) & 255u;
    const auto code = static_cast<float>(valueOfE2m1(cast.codes[i / 2] >> 4 * (i % 2) & 15u));
    row.values.push_back(product(code, product(valueOfE4m3(scale), factor.row)));
  }
  const std::size_t scalesAt = sums.size() / 2, factorsAt = scalesAt + padded(cast.scales.size() * 4);
  row.bytes.resize(factorsAt + 16);
  std::memcpy(row.bytes.data() + scalesAt, cast.scales.data(), cast.scales.size() * 4);
  for (std::size_t copy = 0; copy < 4; ++copy) {
    std::memcpy(row.bytes.data() + factorsAt + 4 * copy, &factor.row, sizeof factor.row);
  }
  return row;
}

}  // namespace

ReferenceWire referenceWire(int wire, const std::vector<float>& sums) {
  return wire == moeWireFp8 ? directRow(sums) : wire == moeWireFp8Block ? blockRow(sums) : nvfp4Row(sums);
}

int referenceWireBytes(int wire, int elements) {
  return static_cast<int>(referenceWire(wire, std::vector<float>(static_cast<std::size_t>(elements))).bytes.size());
}

}  // namespace moe::test
