// Which kernel of a step, and where it is: in the file of its family, so that the families are compiled side by side.
#pragma once

#include "device/view/step_names.h"

namespace moe {

struct KernelChoice {
  Step step;
  bool far;       // for several domains
  bool bulk;      // with the bulk-copy engine
  bool longRows;  // bulk: of sums
  bool timed;     // whose waits note how long they last: not in bulk
};

// What the runtime knows a kernel by; NULL if there is no such kernel, or the step is of another family.
const void* kernelOfRoute(const KernelChoice& choice);
const void* kernelOfHtDispatch(const KernelChoice& choice);
const void* kernelOfCast(const KernelChoice& choice);
const void* kernelOfCombine(const KernelChoice& choice);
const void* kernelOfLl(const KernelChoice& choice);
const void* kernelOfCodedCombine(const KernelChoice& choice);
const void* timedKernelOfRoute(const KernelChoice& choice);
const void* timedKernelOfHtDispatch(const KernelChoice& choice);
const void* timedKernelOfCast(const KernelChoice& choice);
const void* timedKernelOfCombine(const KernelChoice& choice);
const void* timedKernelOfLl(const KernelChoice& choice);
const void* timedKernelOfCodedCombine(const KernelChoice& choice);

}  // namespace moe
