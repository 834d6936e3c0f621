#include "device/kernels/host_steps.h"

#include "device/kernels/host_steps_text.h"

#if MOECOMM_HOST_BUILDS
namespace moe_avx2 {
void runHostStepHere(int step, const void* params, const int* warp, void* pace);
}
namespace moe_avx512 {
void runHostStepHere(int step, const void* params, const int* warp, void* pace);
}
#endif

namespace moe {
namespace {

using Build = void (*)(int, const void*, const int*, void*);

template <Build kBuild>
void run(Step step, const StepParams& params, WarpIndex warp, HostPace& pace) {
  const int index[] = {warp.index, warp.count};
  kBuild(static_cast<int>(step), &params, index, &pace);
}

#if MOECOMM_HOST_BUILDS
bool hasAvx2() {
  return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("bmi") && __builtin_cpu_supports("bmi2") &&
         __builtin_cpu_supports("popcnt");
}
bool hasAvx512() {
  return hasAvx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512cd") && __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
}
#endif

}  // namespace

HostStepRunner hostStepRunner(HostSimd simd) {
#if MOECOMM_HOST_BUILDS
  const bool any = simd == HostSimd::automatic;
  if ((any || simd == HostSimd::avx512) && hasAvx512()) return run<moe_avx512::runHostStepHere>;
  if ((any || simd == HostSimd::avx2) && hasAvx2()) return run<moe_avx2::runHostStepHere>;
#endif
  return simd == HostSimd::automatic || simd == HostSimd::none ? run<runHostStepHere> : nullptr;
}

}  // namespace moe
