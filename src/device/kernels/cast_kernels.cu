#include "device/kernels/cast_steps.h"
#include "device/kernels/step_kernels.h"

const void* moe::kernelOfCast(const KernelChoice& choice) {
  return kernelOf(CastSteps{}, choice);
}
