#include "device/kernels/ht_dispatch_steps.h"
#include "device/kernels/step_kernels.h"

const void* moe::timedKernelOfHtDispatch(const KernelChoice& choice) {
  return timedKernelOf(HtDispatchSteps{}, choice);
}
