#include "device/kernels/ll_steps.h"
#include "device/kernels/step_kernels.h"

template <>
const void* moe::kernelOf<moe::StepFamily::ll>(const KernelChoice& choice) {
  return kernelIn<StepFamily::ll>(choice);
}
