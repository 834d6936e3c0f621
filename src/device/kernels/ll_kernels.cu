#include "device/kernels/ll_steps.h"
#include "device/kernels/step_kernels.h"

const void* moe::kernelOfLl(const KernelChoice& choice) {
  return kernelOf(LlSteps{}, choice);
}
