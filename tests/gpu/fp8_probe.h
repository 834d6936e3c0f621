// Everything that device/rows/fp8.h computes from one 16-byte piece, as bits. nvcc compiles it for the GPU, and the
// host compiler compiles it for the CPU. fp8_test.cc compares the two.
#pragma once

#include <vector>

#include "device/rows/fp8.h"

namespace moe::test {

struct Fp8Question {
  Quad piece;
  std::uint32_t inverse;  // bits of the factor that quantise() multiplies by
  std::uint32_t amax;     // bits of the value that the scales are made from
  std::uint32_t unused[2];
};

struct Fp8Answer {
  std::uint32_t codesOfBf16[2], codesOfFp16[2], codesOfFp32;
  std::uint32_t converted;  // E4m3::fromFloat of the words; on a GPU with an instruction for it, not quantise()
  std::uint32_t decoded;    // the code in the low byte of the first word, times `inverse`
  std::uint32_t amaxOfBf16, amaxOfFp16, amaxOfFp32;
  std::uint32_t scale, inverse, powerScale, powerInverse;
  std::uint32_t ue8m0, powerOfByte;
};

// Processors differ in the bits of a NaN that arithmetic makes, so all NaNs compare as one.
MOE_LANES std::uint32_t comparableBits(float value) {
  const std::uint32_t bits = floatToBits(value);
  return (bits & 0x7fffffffu) > 0x7f800000u ? 0x7fffffffu : bits;
}

MOE_LANES Fp8Answer answer(const Fp8Question& question) {
  const Quad& piece = question.piece;
  const float inverse = bitsToFloat(question.inverse), amax = bitsToFloat(question.amax);
  const auto bf16 = quantise<Bf16>(piece, inverse);
  const auto fp16 = quantise<Fp16>(piece, inverse);
  const Fp8Scale scale = fp8Scale(amax), power = ue8m0Scale(amax);
  const std::uint32_t converted = E4m3::fromFloat(bitsToFloat(piece.x)) | E4m3::fromFloat(bitsToFloat(piece.y)) << 8 |
                                  E4m3::fromFloat(bitsToFloat(piece.z)) << 16 |
                                  E4m3::fromFloat(bitsToFloat(piece.w)) << 24;
  return {{bf16.word[0], bf16.word[1]},
          {fp16.word[0], fp16.word[1]},
          quantise<Fp32>(piece, inverse).word[0],
          converted,
          comparableBits(dequantise(piece.x & 0xffu, inverse)),
          floatToBits(amaxOf<Bf16>(piece)),
          floatToBits(amaxOf<Fp16>(piece)),
          floatToBits(amaxOf<Fp32>(piece)),
          floatToBits(scale.scale),
          floatToBits(scale.inverse),
          floatToBits(power.scale),
          floatToBits(power.inverse),
          Ue8m0::scaleOf(amax),
          comparableBits(Ue8m0::toFloat(piece.x & 0xffu))};
}

// The GPU's answers, in order. Throws std::runtime_error with CUDA's text.
std::vector<Fp8Answer> answersOfGpu(const std::vector<Fp8Question>& questions);

// The number of floats x in [least, most] for which a quotient of device/rows/quotients.h differs from a rounded
// division: by 6, 448 or 2688, of the latter two by x, or of x by the value of an e4m3 code.
enum class Quotient { bySix, byFp8Max, byNvfp4Max, ofFp8Max, ofNvfp4Max, byCode };
std::uint64_t wrongQuotients(Quotient which, float least, float most);

}  // namespace moe::test
