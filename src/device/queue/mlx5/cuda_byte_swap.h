// Reverses four bytes with one instruction of the GPU, where nvcc would make seven shifts. For
// device/queue/mlx5/byte_order.h alone.
#pragma once

#include "device/lanes.h"

namespace moe::cuda_byte_swap {

MOE_LANES std::uint32_t swapped(std::uint32_t value) {
  return __byte_perm(value, 0, 0x0123);
}

}  // namespace moe::cuda_byte_swap
