#include "device/kernels/ht_dispatch_steps.h"
#include "device/kernels/step_kernels.h"

const void* moe::kernelOfHtDispatch(const KernelChoice& choice) {
  return kernelOf(HtDispatchSteps{}, choice);
}
