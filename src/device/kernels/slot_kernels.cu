#include "device/kernels/slot_steps.h"
#include "device/kernels/step_kernels.h"

template <>
const void* moe::kernelOf<moe::StepFamily::slots>(const KernelChoice& choice) {
  return kernelIn<StepFamily::slots>(choice);
}
