// What a process that takes the place of a lost rank must know of the others' handles (decision 0125). It creates these
// first, in the same order, so that its handles have the numbers and the sets of LL slots of the others'.
#pragma once

#include <cstdint>

namespace moe {

struct HandleCard {
  std::int32_t number, llSet;
  std::int32_t experts, topk, layout, lowLatency;
};

}  // namespace moe
