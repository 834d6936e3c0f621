#include "device/kernels/ht_dispatch_steps.h"
#include "device/kernels/step_kernels.h"

template <>
const void* moe::kernelOf<moe::StepFamily::cast>(const KernelChoice& choice) {
  return kernelIn<StepFamily::cast>(choice);
}
