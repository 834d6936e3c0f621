// Landing words on a GPU. Accesses have 16 bytes (st.relaxed.sys, ld.relaxed.sys, v4), and the value of each of their
// words shows whether it has arrived. A lane polls the pieces that have not arrived 20 ns apart.
#pragma once

#include "device/queue/landing.h"

namespace moe::cuda_landing {

MOE_LANES void store(Quad* to, const Quad& words) {
  asm volatile("st.relaxed.sys.global.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(to), "r"(words.x), "r"(words.y),
               "r"(words.z), "r"(words.w)
               : "memory");
}
MOE_LANES Quad load(const Quad* from) {
  Quad words;
  asm volatile("ld.relaxed.sys.global.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(words.x), "=r"(words.y), "=r"(words.z), "=r"(words.w)
               : "l"(from)
               : "memory");
  return words;
}

// The same for eight bytes, and for one word.
MOE_LANES void store(HalfQuad* to, const HalfQuad& words) {
  asm volatile("st.relaxed.sys.global.v2.u32 [%0], {%1, %2};" ::"l"(to), "r"(words.x), "r"(words.y) : "memory");
}
MOE_LANES HalfQuad load(const HalfQuad* from) {
  HalfQuad words;
  asm volatile("ld.relaxed.sys.global.v2.u32 {%0, %1}, [%2];" : "=r"(words.x), "=r"(words.y) : "l"(from) : "memory");
  return words;
}
MOE_LANES void store(std::uint32_t* to, std::uint32_t word) {
  asm volatile("st.relaxed.sys.global.u32 [%0], %1;" ::"l"(to), "r"(word) : "memory");
}
MOE_LANES std::uint32_t load(const std::uint32_t* from) {
  std::uint32_t word;
  asm volatile("ld.relaxed.sys.global.u32 %0, [%1];" : "=r"(word) : "l"(from) : "memory");
  return word;
}

template <bool kLanding, class Piece>
MOE_LANES void put(Piece* to, const Piece& value) {
  if constexpr (kLanding) {
    store(to, toLanding(value));
  } else {
    *to = value;
  }
}

}  // namespace moe::cuda_landing
