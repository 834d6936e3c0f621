#include "device/kernels/combine_steps.h"
#include "device/kernels/ll_steps.h"
#include "device/kernels/step_kernels.h"

template <>
const void* moe::kernelOf<moe::StepFamily::codedCombine>(const KernelChoice& choice) {
  return kernelIn<StepFamily::codedCombine>(choice);
}
