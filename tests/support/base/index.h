// Converts a signed index or size, as the protocols' structs have it, to the unsigned type of the standard library.
#pragma once

#include <cstddef>
#include <cstdint>

namespace moe::test {

inline std::size_t at(std::int64_t index) {
  return static_cast<std::size_t>(index);
}

}  // namespace moe::test
