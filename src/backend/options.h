// How backends run steps: MOECOMM_BULK, MOECOMM_HOST_SIMD, MOECOMM_HOST_THREADS.
#pragma once

#include "device/kernels/host_steps.h"

namespace moe {

// Whether kernels use the GPU's bulk-copy engine.
enum class Bulk : std::int32_t { automatic = 0, on = 1, off = 2 };

struct HostOptions {
  HostSimd simd = HostSimd::automatic;
  int threads = 0;  // that run a step, with the caller's; 0: the rank's share of processors, at most kThreadsAuto

  static constexpr int kThreadsAuto = 8, kThreadsMax = 64;
};

}  // namespace moe
