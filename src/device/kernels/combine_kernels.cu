#include "device/kernels/combine_steps.h"
#include "device/kernels/step_kernels.h"

const void* moe::kernelOfCombine(const KernelChoice& choice) {
  return kernelOf(CombineSteps{}, choice);
}
