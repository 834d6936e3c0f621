// The elements of a 16-byte piece as floats, and the largest of them, for the formats that rows are cast to. These are
// functions of one lane.
#pragma once

#include "device/rows/row_math.h"

namespace moe {

#if defined(__CUDACC__)
MOE_LANES float divideRounded(float a, float b) {
  return __fdiv_rn(a, b);
}
MOE_LANES float largerNumber(float a, float b) {
  return fmaxf(a, b);
}
MOE_LANES float smallerNumber(float a, float b) {
  return fminf(a, b);
}
MOE_LANES float magnitudeOf(float value) {
  return fabsf(value);
}
MOE_LANES std::uint32_t oddBytes(std::uint32_t a, std::uint32_t b) {
  return __byte_perm(a, b, 0x7531);
}
MOE_LANES std::uint32_t chooseBytes(std::uint32_t a, std::uint32_t b, std::uint32_t numbers) {
  return __byte_perm(a, b, numbers);
}
#else
MOE_LANES float divideRounded(float a, float b) {
  return a / b;
}
// The larger number. A NaN in `b` is ignored; `a` must not be NaN.
MOE_LANES float largerNumber(float a, float b) {
  return b > a ? b : a;
}
MOE_LANES float smallerNumber(float a, float b) {
  return b < a ? b : a;
}
MOE_LANES float magnitudeOf(float value) {
  return bitsToFloat(floatToBits(value) & 0x7fffffffu);
}
// Bytes 1 and 3 of a, then bytes 1 and 3 of b.
MOE_LANES std::uint32_t oddBytes(std::uint32_t a, std::uint32_t b) {
  return (a >> 8 & 0xffu) | (a >> 16 & 0xff00u) | (b << 8 & 0xff0000u) | (b & 0xff000000u);
}
// Four of the bytes 0 to 3 of a and 4 to 7 of b. The lowest four digits of `numbers` choose them, the lowest byte
// first. Only three bits of a digit count here, so the fourth one must be 0.
MOE_LANES std::uint32_t chooseBytes(std::uint32_t a, std::uint32_t b, std::uint32_t numbers) {
  const std::uint64_t bytes = std::uint64_t{b} << 32 | a;
  std::uint32_t chosen = 0;
  for (int i = 0; i < 4; ++i) {
    chosen |= static_cast<std::uint32_t>(bytes >> 8 * (numbers >> 4 * i & 7u) & 0xffu) << 8 * i;
  }
  return chosen;
}
#endif

inline constexpr std::uint32_t kMagnitudeBits = 0x7fffffffu, kInfinityBits = 0x7f800000u;

// Four elements, and their signs in the top bits of four bytes, where 8-bit codes have their signs.
struct FourFloats {
  float value[4];
  std::uint32_t signs;
};

// Reads two words of 16-bit elements.
template <class Type>
MOE_LANES FourFloats fourOf(std::uint32_t first, std::uint32_t second) {
  return {{Type::toFloat(first & 0xffffu), Type::toFloat(first >> 16), Type::toFloat(second & 0xffffu),
           Type::toFloat(second >> 16)},
          oddBytes(first, second) & 0x80808080u};
}

MOE_LANES FourFloats fourOf(Quad piece) {
  return {{bitsToFloat(piece.x), bitsToFloat(piece.y), bitsToFloat(piece.z), bitsToFloat(piece.w)},
          oddBytes(oddBytes(piece.x, piece.y), oddBytes(piece.z, piece.w)) & 0x80808080u};
}

// Four floats.
MOE_LANES FourFloats fourOf(const float* from) {
#if defined(__CUDACC__)
  return fourOf(Quad{floatToBits(from[0]), floatToBits(from[1]), floatToBits(from[2]), floatToBits(from[3])});
#else  // a compiler for processors makes vectors of this
  FourFloats four{{from[0], from[1], from[2], from[3]}, 0};
  for (int i = 0; i < 4; ++i) four.signs |= (floatToBits(from[i]) >> 31) << (8 * i + 7);
  return four;
#endif
}

// The elements times a factor. Signs are computed separately, because a product that is NaN has lost its sign.
MOE_LANES FourFloats scaled(const FourFloats& from, float factor) {
  FourFloats result;
  for (int i = 0; i < 4; ++i) result.value[i] = multiplyRounded(from.value[i], factor);
  result.signs = from.signs ^ (floatToBits(factor) >> 31 != 0 ? 0x80808080u : 0u);
  return result;
}

// The largest magnitude in a piece, ignoring NaNs. Such floats are ordered like their bits, so warps may compare the
// bits.
template <class Type>
MOE_LANES float amaxOf(Quad piece) {
  const std::uint32_t words[4] = {piece.x, piece.y, piece.z, piece.w};
  float largest = 0.0f;
  for (const std::uint32_t word : words) {
    if constexpr (Type::kPerWord == 2) {
      largest = largerNumber(largest, Type::toFloat(word & 0x7fffu));
      largest = largerNumber(largest, Type::toFloat(word >> 16 & 0x7fffu));
    } else {
      largest = largerNumber(largest, Type::toFloat(word & kMagnitudeBits));
    }
  }
  return largest;
}

// The bits of the largest magnitude. If the piece has a NaN, they are the bits of a NaN, because these are the largest.
template <class Type>
MOE_LANES std::uint32_t magnitudeOf(Quad piece) {
  const std::uint32_t words[4] = {piece.x, piece.y, piece.z, piece.w};
  std::uint32_t largest = 0;
  const auto take = [&](std::uint32_t element) {
    const std::uint32_t bits = floatToBits(Type::toFloat(element)) & kMagnitudeBits;
    largest = bits > largest ? bits : largest;
  };
  for (const std::uint32_t word : words) {
    if constexpr (Type::kPerWord == 2) {
      take(word & 0x7fffu);
      take(word >> 16 & 0x7fffu);
    } else {
      take(word);
    }
  }
  return largest;
}

}  // namespace moe
