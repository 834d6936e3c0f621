#include "device/kernels/cast_steps.h"
#include "device/kernels/step_kernels.h"

const void* moe::timedKernelOfCast(const KernelChoice& choice) {
  return timedKernelOf(CastSteps{}, choice);
}
