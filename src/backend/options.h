// How backends run steps and share memory: MOECOMM_BULK, MOECOMM_WINDOW, MOECOMM_HOST_SIMD, MOECOMM_HOST_THREADS.
#pragma once

#include "device/kernels/host_steps.h"

namespace moe {

// Whether kernels use the GPU's bulk-copy engine.
enum class Bulk : std::int32_t { automatic = 0, on = 1, off = 2 };

// How processes map GPU windows: by file descriptors, by CUDA IPC, or by handles of the NVLink fabric. `automatic`
// takes descriptors where they work, with handles of the fabric for other hosts, and else CUDA IPC.
enum class WindowSharing : std::int32_t { automatic = 0, fd = 1, ipc = 2, fabric = 3 };

struct HostOptions {
  HostSimd simd = HostSimd::automatic;
  int threads = 0;  // threads that run a step, including the caller's; 0: the rank's share of processors, at most
                    // kThreadsAuto

  static constexpr int kThreadsAuto = 8, kThreadsMax = 64;
};

}  // namespace moe
