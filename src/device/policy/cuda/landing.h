// Landing words on a GPU: 16 bytes go at once (st.relaxed.sys, ld.relaxed.sys, v4), and each of their words shows by
// its value that it has come. A lane polls the pieces that have not come 20 ns apart.
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

template <bool kLanding>
MOE_LANES void put(Quad* to, const Quad& value) {
  if constexpr (kLanding) {
    store(to, toLanding(value));
  } else {
    *to = value;
  }
}

}  // namespace moe::cuda_landing
