#include "device/kernels/plain_steps.h"
#include "device/kernels/step_kernels.h"

template <>
const void* moe::kernelOf<moe::StepFamily::plain>(const KernelChoice& choice) {
  return kernelIn<StepFamily::plain>(choice);
}
