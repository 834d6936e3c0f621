// Whether kernels use the GPU's bulk-copy engine (MOECOMM_BULK).
#pragma once

#include <cstdint>

namespace moe {

enum class Bulk : std::int32_t { kAuto = 0, kOn = 1, kOff = 2 };

}  // namespace moe
