#include <cstring>

#include "device/rows/wire_row.h"
#include "gpu/cuda_memory.h"
#include "gpu/fp8_probe.h"

namespace moe::test {
namespace {

__global__ void answerKernel(const Fp8Question* questions, Fp8Answer* answers, std::size_t count) {
  const std::size_t i = std::size_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (i < count) answers[i] = answer(questions[i]);
}

// The quotient and what a division gives.
__device__ float2 quotientOf(Quotient which, float x) {
  constexpr float kFp8 = E4m3::kMax, kNvfp4 = E2m1::kMax * E4m3::kMax;
  switch (which) {
    case Quotient::bySix:
      return {overConstant(x, E2m1::kMax), __fdiv_rn(x, E2m1::kMax)};
    case Quotient::byFp8Max:
      return {fp8Scale(x, kFp8AmaxExact).scale, __fdiv_rn(x, kFp8)};
    case Quotient::byNvfp4Max:
      return {WireFactor::of(floatToBits(x)).factor, __fdiv_rn(x, kNvfp4)};
    case Quotient::ofFp8Max:
      return {fp8Scale(x, kFp8AmaxExact).inverse, __fdiv_rn(kFp8, x)};
    case Quotient::ofNvfp4Max:
      return {WireFactor::of(floatToBits(x)).global, __fdiv_rn(kNvfp4, x)};
    case Quotient::byCode:
      break;
  }
  const float y = E4m3::toFloat(1 + floatToBits(x) % 0x7e);
  return {normalQuotient(x, y), __fdiv_rn(x, y)};
}
__global__ void quotientKernel(Quotient which, std::uint32_t first, std::uint32_t last, unsigned long long* wrong) {
  const std::uint32_t step = gridDim.x * blockDim.x;
  unsigned long long differ = 0;
  for (std::uint64_t bits = first + blockIdx.x * blockDim.x + threadIdx.x; bits <= last; bits += step) {
    const float2 both = quotientOf(which, bitsToFloat(static_cast<std::uint32_t>(bits)));
    if (floatToBits(both.x) != floatToBits(both.y)) ++differ;
  }
  if (differ != 0) atomicAdd(wrong, differ);
}

}  // namespace

std::uint64_t wrongQuotients(Quotient which, float least, float most) {
  std::uint32_t first, last;
  std::memcpy(&first, &least, sizeof(first));
  std::memcpy(&last, &most, sizeof(last));
  const auto wrong = allocate<unsigned long long>(1);
  check(cudaMemset(wrong.get(), 0, sizeof(unsigned long long)), "clear");
  quotientKernel<<<1024, 256>>>(which, first, last, wrong.get());
  check(cudaGetLastError(), "quotientKernel");
  unsigned long long result = 0;
  check(cudaMemcpy(&result, wrong.get(), sizeof(result), cudaMemcpyDeviceToHost), "quotientKernel");
  return result;
}

std::vector<Fp8Answer> answersOfGpu(const std::vector<Fp8Question>& questions) {
  const std::size_t count = questions.size();
  const auto from = allocate<Fp8Question>(count);
  const auto to = allocate<Fp8Answer>(count);
  check(cudaMemcpy(from.get(), questions.data(), count * sizeof(Fp8Question), cudaMemcpyHostToDevice), "upload");
  answerKernel<<<static_cast<unsigned>((count + 255) / 256), 256>>>(from.get(), to.get(), count);
  check(cudaGetLastError(), "answerKernel");
  std::vector<Fp8Answer> answers(count);
  check(cudaMemcpy(answers.data(), to.get(), count * sizeof(Fp8Answer), cudaMemcpyDeviceToHost), "answerKernel");
  return answers;
}

}  // namespace moe::test
