// Begins a build of the host's steps for some processors only, which MOE_HOST_BUILD and MOE_HOST_TARGET name. All of
// our own code is compiled in a namespace of its own: the linker keeps one of several functions with one name, and that
// one would then run on other processors too. For the same reason foreign headers come first, compiled for every
// processor.
#pragma once

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
