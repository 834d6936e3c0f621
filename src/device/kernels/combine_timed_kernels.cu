#include "device/kernels/combine_steps.h"
#include "device/kernels/step_kernels.h"

const void* moe::timedKernelOfCombine(const KernelChoice& choice) {
  return timedKernelOf(CombineSteps{}, choice);
}
