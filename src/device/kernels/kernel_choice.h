// The choice of a step's kernel, and how to find it. A kernel is in the file of its step's family, so that the families
// are compiled in parallel.
#pragma once

#include "device/view/steps.h"

namespace moe {

struct KernelChoice {
  Step step;
  bool far;       // for several domains
  bool bulk;      // with the bulk-copy engine
  bool longRows;  // bulk sums only: for long rows
  bool bf16;      // StepRow::hasTypes() only: for rows of bfloat16
  int wire = 0;   // StepRow::hasFormats() and bf16 only: for rows that travel in this format
};

// The runtime's pointer to a kernel. NULL: there is no such kernel, or the step belongs to another family. The .cu file
// of each family defines this function.
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
const void* kernelOf<StepFamily::plain>(const KernelChoice& choice);

}  // namespace moe
