// A signed index or size, of which the protocols' structs are full, as the standard library wants it.
#pragma once

#include <cstddef>
#include <cstdint>

namespace moe::test {

inline std::size_t at(std::int64_t index) {
  return static_cast<std::size_t>(index);
}

}  // namespace moe::test
