#include "device/kernels/route_steps.h"
#include "device/kernels/step_kernels.h"

const void* moe::timedKernelOfRoute(const KernelChoice& choice) {
  return timedKernelOf(RouteSteps{}, choice);
}
