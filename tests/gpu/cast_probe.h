// The results of device/rows/cast_row.h for a piece of a row that is cast, as bits, for every format. nvcc compiles it
// for the GPU, and the host compiler compiles it for the CPU. cast_test.cc compares the two.
#pragma once

#include <vector>

#include "device/rows/cast_row.h"
#include "gpu/fp8_probe.h"

namespace moe::test {

struct alignas(16) CastQuestion {
  Quad quads[4];  // fp32 takes all, the others take two
  int cast, rowType;
  float input, global;
  std::uint32_t magnitude;  // magnitude of the rest of the block
};

struct CastAnswer {
  std::uint32_t magnitude;  // magnitude of the piece
  std::uint32_t scale, inverse;
  Quad codes;       // by any rule; of E2M1 in the first two words
  Quad plainCodes;  // E4M3 codes without an input scale
};

template <class Type>
MOE_LANES CastAnswer answerFor(const CastQuestion& question) {
  const CastFactors factors{question.cast, question.input, question.global};
  const auto piece = CastPiece<Type>::of(reinterpret_cast<const std::uint8_t*>(question.quads), 0);
  const std::uint32_t own = piece.magnitude(question.cast);
  const BlockScale scale = blockScale(factors, own > question.magnitude ? own : question.magnitude);
  CastAnswer answer{comparableBits(bitsToFloat(own)), scale.bits, comparableBits(scale.inverse), {}, {}};
  if (castToE2m1(question.cast)) {
    const HalfQuad codes = piece.codesE2m1(factors.input, scale.inverse);
    answer.codes = {codes.x, codes.y, 0, 0};
  } else {
    answer.codes = piece.codes(factors.input, scale.inverse);
    answer.plainCodes = piece.codes(scale.inverse);
  }
  return answer;
}

MOE_LANES CastAnswer answer(const CastQuestion& question) {
  if (question.rowType == kFp32) return answerFor<Fp32>(question);
  return question.rowType == kFp16 ? answerFor<Fp16>(question) : answerFor<Bf16>(question);
}

// The GPU's answers, in order. Throws std::runtime_error with CUDA's text.
std::vector<CastAnswer> answersOfGpu(const std::vector<CastQuestion>& questions);

}  // namespace moe::test
