// Which kernel of a step, and where it is: in the file of its family, so that the families are compiled side by side.
#pragma once

#include "device/view/step_names.h"

namespace moe {

struct KernelChoice {
  Step step;
  bool far;       // for several domains
  bool bulk;      // with the bulk-copy engine
  bool longRows;  // bulk: of sums
};

// What the runtime knows a kernel by; NULL if there is no such kernel, or the step is of another family.
const void* kernelOfRoute(const KernelChoice& choice);
const void* kernelOfHtDispatch(const KernelChoice& choice);
const void* kernelOfCast(const KernelChoice& choice);
const void* kernelOfCombine(const KernelChoice& choice);
const void* kernelOfLl(const KernelChoice& choice);
const void* kernelOfCodedCombine(const KernelChoice& choice);

}  // namespace moe
