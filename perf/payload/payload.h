// The content of moe_perf's rows. Every value follows from (seed, iteration, source rank, token, column), so each rank
// can compute any other's rows by itself. Also the experts' functions and the row formats. Compiled for host and GPU.
#pragma once

#include <array>
#include <cstdint>

#if defined(__CUDACC__)
#define MOE_PERF_BOTH __host__ __device__ inline
#else
#include <cstring>
#define MOE_PERF_BOTH inline
#endif

namespace moe::perf {

enum class Format : int { bf16, fp16, fp32, fp8 };

inline constexpr int kGroup = 4;               // columns handled together
inline constexpr int kScaleColumns = 128;      // columns under one fp8 scale
inline constexpr int kExpertsDistinct = 1024;  // experts with distinct functions; further ones repeat them

MOE_PERF_BOTH constexpr int elementBytes(Format format) {
  return format == Format::fp32 ? 4 : format == Format::fp8 ? 1 : 2;
}

// fp8 rows come back as bf16.
MOE_PERF_BOTH constexpr Format combineFormat(Format format) {
  return format == Format::fp8 ? Format::bf16 : format;
}

MOE_PERF_BOTH std::uint64_t mix(std::uint64_t value) {
  value = (value ^ (value >> 30)) * 0xbf58476d1ce4e5b9ULL;
  value = (value ^ (value >> 27)) * 0x94d049bb133111ebULL;
  return value ^ (value >> 31);
}

// Identifies a row over all iterations, ranks and tokens of a session.
MOE_PERF_BOTH std::uint64_t rowKey(std::uint64_t seed, std::uint32_t iteration, int source, int token) {
  const std::uint64_t place =
      static_cast<std::uint64_t>(static_cast<std::uint32_t>(source)) << 32 | static_cast<std::uint32_t>(token);
  return mix(mix(seed + 0x9e3779b97f4a7c15ULL * (iteration + 1ULL)) ^ place);
}

struct GroupValues {
  float value[kGroup];
};

// Integers from -16 to 15: exact in every format, fp8 included.
MOE_PERF_BOTH GroupValues payload(std::uint64_t key, int group) {
  const std::uint64_t bits = mix(key + 0x9e3779b97f4a7c15ULL * static_cast<std::uint64_t>(group));
  GroupValues values;
  for (int i = 0; i < kGroup; ++i) {
    values.value[i] = static_cast<float>(static_cast<int>(bits >> (16 * i + 8) & 31U) - 16);
  }
  return values;
}

// The cast of rows on their way through dispatch: moeCast values.
enum class Cast : int { none, fp8, fp8Ue8m0, fp8Pow2, mxfp8, mxfp4, nvfp4 };

struct NamedCast {
  const char* name;
  Cast cast;
};
// All of them, by the names of options.
inline constexpr std::array kCasts = {NamedCast{"fp8", Cast::fp8},          NamedCast{"fp8-ue8m0", Cast::fp8Ue8m0},
                                      NamedCast{"fp8-pow2", Cast::fp8Pow2}, NamedCast{"mxfp8", Cast::mxfp8},
                                      NamedCast{"mxfp4", Cast::mxfp4},      NamedCast{"nvfp4", Cast::nvfp4}};

MOE_PERF_BOTH constexpr int castBlockColumns(Cast cast) {
  return cast == Cast::nvfp4 ? 16 : cast == Cast::mxfp8 || cast == Cast::mxfp4 ? 32 : kScaleColumns;
}
// Whether a byte has two codes.
MOE_PERF_BOTH constexpr bool castPacksTwo(Cast cast) {
  return cast == Cast::mxfp4 || cast == Cast::nvfp4;
}
MOE_PERF_BOTH constexpr bool castScalesAreFloats(Cast cast) {
  return cast == Cast::fp8 || cast == Cast::fp8Pow2;
}

// The format of combine's rows on their way: moeWire values.
enum class Wire : int { row, fp8, fp8Block, nvfp4, logfmt10 };

// A power of two from 1/4 to 2 for each block of kScaleColumns columns.
MOE_PERF_BOTH float scaleOf(std::uint64_t key, int block) {
  const auto power = static_cast<int>(mix(key ^ (0x5ca1eULL + static_cast<std::uint64_t>(block) * 0x1000003ULL)) & 3U);
  return 0.25F * static_cast<float>(1 << power);
}

// Expert e computes multiplier * x + offset. All numbers are small integers, so for unscaled x, |y| <= 255 is exact in
// every row type.
struct ExpertFunction {
  float multiplier;
  float offset;
};
MOE_PERF_BOTH ExpertFunction expertFunction(int expert) {
  return {static_cast<float>(1 + expert % 8), static_cast<float>(expert / 8 % 128)};
}

MOE_PERF_BOTH std::uint32_t floatBits(float value) {
#if defined(__CUDA_ARCH__)
  return __float_as_uint(value);
#else
  std::uint32_t bits = 0;
  __builtin_memcpy(&bits, &value, sizeof(bits));
  return bits;
#endif
}

MOE_PERF_BOTH float bitsFloat(std::uint32_t bits) {
#if defined(__CUDA_ARCH__)
  return __uint_as_float(bits);
#else
  float value = 0;
  __builtin_memcpy(&value, &bits, sizeof(value));
  return value;
#endif
}

// Conversions of finite values, rounding to nearest even. They do not share code with the library, so that a defect
// there shows as wrong elements.
MOE_PERF_BOTH std::uint32_t toBf16(float value) {
  const std::uint32_t bits = floatBits(value);
  return (bits + 0x7fffU + (bits >> 16 & 1U)) >> 16;
}

// Values are 0 or have a magnitude from 2^-5 to 65504: no subnormals, no overflow.
MOE_PERF_BOTH std::uint32_t toFp16(float value) {
  const std::uint32_t bits = floatBits(value);
  const std::uint32_t sign = bits >> 16 & 0x8000U;
  const std::uint32_t magnitude = bits & 0x7fffffffU;
  if (magnitude == 0) return sign;
  return sign | (magnitude - 0x38000000U + 0xfffU + (magnitude >> 13 & 1U)) >> 13;
}

MOE_PERF_BOTH float fromFp16(std::uint32_t half) {
  const std::uint32_t sign = (half & 0x8000U) << 16;
  const std::uint32_t exponent = half >> 10 & 31U;
  const std::uint32_t fraction = half & 0x3ffU;
  if (exponent == 31) return bitsFloat(sign | 0x7f800000U | fraction << 13);
  if (exponent == 0) return (sign != 0 ? -1.0F : 1.0F) * static_cast<float>(fraction) * 0x1p-24F;
  return bitsFloat(sign | (exponent + 112) << 23 | fraction << 13);
}

// Converts an integer from -16 to 15 to e4m3.
MOE_PERF_BOTH std::uint32_t toFp8(float value) {
  const std::uint32_t bits = floatBits(value);
  const std::uint32_t magnitude = bits & 0x7fffffffU;
  if (magnitude == 0) return 0;
  const std::uint32_t exponent = (magnitude >> 23) - 120U;
  return (bits >> 24 & 0x80U) | exponent << 3 | (magnitude >> 20 & 7U);
}

MOE_PERF_BOTH float fromFp8(std::uint32_t byte) {
  const std::uint32_t sign = (byte & 0x80U) << 24;
  const std::uint32_t exponent = byte >> 3 & 15U;
  const std::uint32_t fraction = byte & 7U;
  if (exponent == 0) return (sign != 0 ? -1.0F : 1.0F) * static_cast<float>(fraction) * 0x1p-9F;
  return bitsFloat(sign | (exponent + 120U) << 23 | fraction << 20);
}

// A code of 4 bits: 0, 0.5, 1, 1.5, 2, 3, 4, 6.
MOE_PERF_BOTH float fromE2m1(std::uint32_t code) {
  const std::uint32_t exponent = code >> 1 & 3U;
  const float fraction = 0.5F * static_cast<float>(code & 1U);
  const float magnitude = exponent == 0 ? fraction : (1.0F + fraction) * static_cast<float>(1U << (exponent - 1U));
  return (code & 8U) != 0 ? -magnitude : magnitude;
}

MOE_PERF_BOTH std::uint32_t encode(Format format, float value) {
  switch (format) {
    case Format::bf16:
      return toBf16(value);
    case Format::fp16:
      return toFp16(value);
    case Format::fp32:
      return floatBits(value);
    case Format::fp8:
      return toFp8(value);
  }
  return 0;
}

MOE_PERF_BOTH float decode(Format format, std::uint32_t bits) {
  switch (format) {
    case Format::bf16:
      return bitsFloat(bits << 16);
    case Format::fp16:
      return fromFp16(bits);
    case Format::fp32:
      return bitsFloat(bits);
    case Format::fp8:
      return fromFp8(bits);
  }
  return 0;
}

// `value` after a trip through a row of this format.
MOE_PERF_BOTH float rounded(Format format, float value) {
  return decode(format, encode(format, value));
}

template <class Word>
MOE_PERF_BOTH Word loadAs(const void* from) {
#if defined(__CUDA_ARCH__)
  return *static_cast<const Word*>(from);
#else
  Word word;
  __builtin_memcpy(&word, from, sizeof(word));
  return word;
#endif
}

template <class Word>
MOE_PERF_BOTH void storeAs(void* to, Word word) {
#if defined(__CUDA_ARCH__)
  *static_cast<Word*>(to) = word;
#else
  __builtin_memcpy(to, &word, sizeof(word));
#endif
}

// The four columns of `group` of a row that starts at `row`.
MOE_PERF_BOTH GroupValues loadGroup(Format format, const void* row, int group) {
  const char* from = static_cast<const char*>(row) + static_cast<std::int64_t>(group) * kGroup * elementBytes(format);
  GroupValues values;
  for (int i = 0; i < kGroup; ++i) {
    const int bytes = elementBytes(format);
    const std::uint32_t bits = bytes == 4   ? loadAs<std::uint32_t>(from + 4 * i)
                               : bytes == 2 ? loadAs<std::uint16_t>(from + 2 * i)
                                            : loadAs<std::uint8_t>(from + i);
    values.value[i] = decode(format, bits);
  }
  return values;
}

// The same for codes that a cast has made.
MOE_PERF_BOTH GroupValues loadCodes(Cast cast, const void* row, int group) {
  if (!castPacksTwo(cast)) return loadGroup(Format::fp8, row, group);
  const char* from = static_cast<const char*>(row) + static_cast<std::int64_t>(group) * (kGroup / 2);
  GroupValues values;
  for (int i = 0; i < kGroup; ++i) values.value[i] = fromE2m1(loadAs<std::uint8_t>(from + i / 2) >> 4 * (i % 2) & 15U);
  return values;
}

MOE_PERF_BOTH void storeGroup(Format format, void* row, int group, const GroupValues& values) {
  char* to = static_cast<char*>(row) + static_cast<std::int64_t>(group) * kGroup * elementBytes(format);
  for (int i = 0; i < kGroup; ++i) {
    const std::uint32_t bits = encode(format, values.value[i]);
    switch (elementBytes(format)) {
      case 4:
        storeAs(to + 4 * i, bits);
        break;
      case 2:
        storeAs(to + 2 * i, static_cast<std::uint16_t>(bits));
        break;
      default:
        storeAs(to + i, static_cast<std::uint8_t>(bits));
        break;
    }
  }
}

}  // namespace moe::perf
