#include "device/kernels/coded_combine_steps.h"
#include "device/kernels/step_kernels.h"

const void* moe::timedKernelOfCodedCombine(const KernelChoice& choice) {
  return timedKernelOf(CodedCombineSteps{}, choice);
}
