// The instruction sets that the host's steps are built for (MOECOMM_HOST_SIMD).
#pragma once

#include <cstdint>

namespace moe {

enum class HostSimd : std::int32_t { automatic, none, avx2, avx512 };

}  // namespace moe
