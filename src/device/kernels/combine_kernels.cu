#include "device/kernels/combine_steps.h"
#include "device/kernels/step_kernels.h"

template <>
const void* moe::kernelOf<moe::StepFamily::combine>(const KernelChoice& choice) {
  return kernelIn<StepFamily::combine>(choice);
}
