// Which kernel of a step, and where it is: in the file of its family, so that the families are compiled side by side.
#pragma once

#include "device/view/steps.h"

namespace moe {

struct KernelChoice {
  Step step;
  bool far;       // for several domains
  bool bulk;      // with the bulk-copy engine
  bool longRows;  // bulk: of sums
};

// What the runtime knows a kernel by; NULL if there is no such kernel, or the step is of another family. Each family
// has this in its .cu file.
template <StepFamily kFamily>
const void* kernelOf(const KernelChoice& choice);
template <>
const void* kernelOf<StepFamily::route>(const KernelChoice& choice);
template <>
const void* kernelOf<StepFamily::htDispatch>(const KernelChoice& choice);
template <>
const void* kernelOf<StepFamily::cast>(const KernelChoice& choice);
template <>
const void* kernelOf<StepFamily::ll>(const KernelChoice& choice);
template <>
const void* kernelOf<StepFamily::combine>(const KernelChoice& choice);
template <>
const void* kernelOf<StepFamily::codedCombine>(const KernelChoice& choice);
template <>
const void* kernelOf<StepFamily::slots>(const KernelChoice& choice);

}  // namespace moe
