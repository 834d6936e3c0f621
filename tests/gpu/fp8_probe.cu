#include "gpu/cuda_memory.h"
#include "gpu/fp8_probe.h"

namespace moe::test {
namespace {

__global__ void answerKernel(const Fp8Question* questions, Fp8Answer* answers, std::size_t count) {
  const std::size_t i = std::size_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (i < count) answers[i] = answer(questions[i]);
}

}  // namespace

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
