// The steps over the host policy, for each build. Parameters are those of device/view/views.h, which every build
// compiles under its own name.
//
// MOE_HOST_BUILD and MOE_HOST_TARGET identify a build for some processors only. Then all of our own code is compiled in
// a separate namespace. Otherwise the linker would keep one of several functions with the same name, which would then
// run on other processors too. For the same reason foreign headers come first, compiled for every processor.
#pragma once

#if defined(MOE_HOST_BUILD)
#include <algorithm>
#include <atomic>
#include <bit>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <thread>
#include <type_traits>

#define MOE_PRAGMA(text) _Pragma(#text)
#define MOE_EXPANDED_PRAGMA(text) MOE_PRAGMA(text)
#if defined(__clang__)
MOE_EXPANDED_PRAGMA(clang attribute push(__attribute__((target(MOE_HOST_TARGET))), apply_to = function))
#else
#pragma GCC push_options
MOE_EXPANDED_PRAGMA(GCC target(MOE_HOST_TARGET))
#endif
#define moe MOE_HOST_BUILD
#endif

#include "device/kernels/run_step.h"
#include "device/policy/host/warp.h"

namespace moe {

// NOLINTNEXTLINE(misc-definitions-in-headers): each build includes this text once, in a namespace of its own.
void runHostStepHere(int step, const void* params, const int* warp, void* pace) {
  runNamedStep(HostWarp(HostQueueMemory(), static_cast<HostPace*>(pace)), static_cast<Step>(step),
               *static_cast<const StepParams*>(params), WarpIndex{warp[0], warp[1], warp[1]});
}

}  // namespace moe

#if defined(MOE_HOST_BUILD)
#undef moe
#if defined(__clang__)
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif
#endif
