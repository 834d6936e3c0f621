#include "gpu/cast_probe.h"
#include "gpu/cuda_memory.h"

namespace moe::test {
namespace {

__global__ void castKernel(const CastQuestion* questions, CastAnswer* answers, std::size_t count) {
  const std::size_t i = std::size_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (i < count) answers[i] = answer(questions[i]);
}

}  // namespace

std::vector<CastAnswer> answersOfGpu(const std::vector<CastQuestion>& questions) {
  const std::size_t count = questions.size();
  const auto from = allocate<CastQuestion>(count);
  const auto to = allocate<CastAnswer>(count);
  check(cudaMemcpy(from.get(), questions.data(), count * sizeof(CastQuestion), cudaMemcpyHostToDevice), "upload");
  castKernel<<<static_cast<unsigned>((count + 255) / 256), 256>>>(from.get(), to.get(), count);
  check(cudaGetLastError(), "castKernel");
  std::vector<CastAnswer> answers(count);
  check(cudaMemcpy(answers.data(), to.get(), count * sizeof(CastAnswer), cudaMemcpyDeviceToHost), "castKernel");
  return answers;
}

}  // namespace moe::test
