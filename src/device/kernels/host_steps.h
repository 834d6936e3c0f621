// Runs a step with the host policy on the calling thread. The same code is built several times, for processors with
// further instructions. All builds compute the same bits.
#pragma once

#include <cstdint>

namespace moe {

class HostPace;
enum class Step;
struct LayoutArgs;
struct StepParams;
struct WarpIndex;

// The instruction sets that the host's steps are built for (MOECOMM_HOST_SIMD).
enum class HostSimd : std::int32_t { automatic, none, avx2, avx512 };

// Runs one warp's part of a step. `pace` belongs to the calling thread.
using HostStepRunner = void (*)(Step step, const StepParams& params, WarpIndex warp, HostPace& pace);

// NULL if this processor or this build of the library lacks the instructions. `automatic` chooses the best build.
HostStepRunner hostStepRunner(HostSimd simd);

// Counts a dispatch layout on the calling thread.
void runLayout(const LayoutArgs& args);

}  // namespace moe
