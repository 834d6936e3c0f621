#include "device/kernels/route_steps.h"
#include "device/kernels/step_kernels.h"

template <>
const void* moe::kernelOf<moe::StepFamily::route>(const KernelChoice& choice) {
  return kernelIn<StepFamily::route>(choice);
}
