#include "support/reference/wire_reference.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "moecomm.h"
#include "support/reference/cast_reference.h"
#include "support/reference/fp8_reference.h"
#include "support/reference/reference.h"

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

// For a row whose largest number is `amax`: the float that travels, and the global scale of the row's blocks.
struct Factor {
  float row, global;
};
Factor factorOf(const std::vector<float>& sums) {
  float amax = std::ldexp(6.0f * 448.0f, -118);
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

// ---- LogFMT-10, by the rule of docs/guide/formats.md in floats. tests/unit/device_logfmt_test.cc compares the library
// with logarithms in double.

float horner(std::initializer_list<float> coefficients, float x) {
  float result = 0;
  for (const float c : coefficients) result = product(result, x) + c;
  return result;
}

// x = 2^octave * 2^rest.
struct Log {
  int octave;
  float rest;
};
Log logOf(float x) {
  int exponent = 0;
  const float m = 2 * std::frexp(x, &exponent) - 1;
  const float q =
      horner({-0x1.efa172p-7f, 0x1.067158p-4f, -0x1.0d33d8p-3f, 0x1.92c300p-3f, -0x1.1ce0e6p-2f, 0x1.c5503ap-2f}, m);
  return {exponent - 1, product(product(m, 1 - m), q) + m};
}

float bf16(std::uint32_t half) {
  return std::bit_cast<float>(half << 16);
}

struct LogBlock {
  bool isNan = false;
  std::uint32_t amax = 0, amin = 0;  // bf16
  Log top{};
  float span = 32;

  explicit LogBlock(const float* sums) {
    float most = 0, least = std::numeric_limits<float>::infinity();
    for (int i = 0; i < 128; ++i) {
      isNan = isNan || std::isnan(sums[i]);
      most = std::max(most, std::abs(sums[i]));
      least = std::min(least, std::abs(sums[i]));
    }
    amin = isNan ? 0 : std::bit_cast<std::uint32_t>(least) >> 16;
    amax = std::bit_cast<std::uint32_t>(most) >> 16;
    amax = std::min(bf16(amax) < most ? amax + 1 : amax, 0x7f7fu);
    top = logOf(std::max(bf16(amax), std::ldexp(1.0f, -93)));
    if (bf16(amin) < std::numeric_limits<float>::min()) return;
    const Log bottom = bf16(amin) < std::numeric_limits<float>::infinity() ? logOf(bf16(amin)) : Log{128, 0};
    span = std::clamp(static_cast<float>(top.octave - bottom.octave) + (top.rest - bottom.rest), 1.0f, 32.0f);
  }
  float step() const { return product(span, 1.0f / 510); }
  int codeOf(float magnitude) const {
    if (isNan || magnitude < std::numeric_limits<float>::min()) return 0;
    if (std::isinf(magnitude)) return 511;
    const Log x = logOf(magnitude);
    const float log = static_cast<float>(x.octave - top.octave) + (x.rest - top.rest);
    const float place = product(log, 510 / span) + (511 - product(step(), 0x1.62e430p-4f));
    return static_cast<int>(std::nearbyint(std::clamp(place, 0.0f, 511.0f)));
  }
  float valueOf(int code) const {
    if (code == 0) return isNan ? kNan : 0;
    const float log = top.rest - product(step(), static_cast<float>(511 - code));
    const float octave = std::nearbyint(log), f = log - octave;
    const float power = horner({0x1.5ec866p-10f, 0x1.3cbf60p-7f, 0x1.c6afeep-5f, 0x1.ebfa4cp-3f, 0x1.62e430p-1f, 1}, f);
    return std::ldexp(power, top.octave + static_cast<int>(octave));
  }
};

// Bits [at, at + count) of a row become those of `value`.
void putBits(std::vector<std::uint8_t>& bytes, std::size_t at, int count, int value) {
  for (int i = 0; i < count; ++i, ++at) bytes[at / 8] |= static_cast<std::uint8_t>((value >> i & 1) << at % 8);
}

ReferenceWire logRow(const std::vector<float>& sums) {
  const std::size_t fifths = sums.size(), blocks = fifths + sums.size() / 4;
  ReferenceWire row{std::vector<std::uint8_t>(blocks + padded(sums.size() / 32)), {}};
  std::vector<LogBlock> found;
  for (std::size_t i = 0; i < sums.size(); ++i) {
    if (i % 128 == 0) found.emplace_back(&sums[i]);
    const LogBlock& block = found.back();
    if (i % 128 == 0) {
      putBits(row.bytes, 8 * (blocks + i / 32), 16, block.isNan ? 0x7fff : static_cast<int>(block.amax));
      putBits(row.bytes, 8 * (blocks + i / 32) + 16, 16, static_cast<int>(block.amin));
    }
    const int code = block.codeOf(std::abs(sums[i])), sign = code != 0 && sums[i] < 0 ? 512 : 0;
    const float magnitude = block.valueOf(code);
    row.values.push_back(sign != 0 ? -magnitude : magnitude);
    const int piece = static_cast<int>(i / 16), e = static_cast<int>(i % 16), field = 511 - code + sign;
    const auto word = [&](int w) {
      return 8 * (w < 4 ? static_cast<std::size_t>(16 * piece + 4 * w) : fifths + static_cast<std::size_t>(4 * piece));
    };
    if (e < 15) putBits(row.bytes, word(e / 3) + static_cast<std::size_t>(e % 3 * 10), 10, field);
    for (int w = 0; e == 15 && w < 5; ++w) putBits(row.bytes, word(w) + 30, 2, field >> 2 * w & 3);
  }
  return row;
}

}  // namespace

ReferenceWire referenceWire(int wire, const std::vector<float>& sums) {
  if (wire == moeWireLogfmt10) return logRow(sums);
  return wire == moeWireFp8 ? directRow(sums) : wire == moeWireFp8Block ? blockRow(sums) : nvfp4Row(sums);
}

int referenceWireBytes(int wire, int elements) {
  return static_cast<int>(referenceWire(wire, std::vector<float>(static_cast<std::size_t>(elements))).bytes.size());
}

}  // namespace moe::test
