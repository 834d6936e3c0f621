// Landing words on a GPU (landing.h): 16 bytes go at once, and each of their words says for itself that it has come.
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
