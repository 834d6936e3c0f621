#include "device/kernels/route_steps.h"
#include "device/kernels/step_kernels.h"

const void* moe::kernelOfRoute(const KernelChoice& choice) {
  return kernelOf(RouteSteps{}, choice);
}
