#include "device/kernels/coded_combine_steps.h"
#include "device/kernels/step_kernels.h"

const void* moe::kernelOfCodedCombine(const KernelChoice& choice) {
  return kernelOf(CodedCombineSteps{}, choice);
}
