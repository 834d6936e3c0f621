#include "device/kernels/ll_steps.h"
#include "device/kernels/step_kernels.h"

const void* moe::timedKernelOfLl(const KernelChoice& choice) {
  return timedKernelOf(LlSteps{}, choice);
}
