// Which bytes of a window outlast a step. Everything else in it is written anew by each step before it is read, or is
// the caller's.
#pragma once

#include "device/view/window_layout.h"

namespace moe {

// The flags, and llLastRows, which must fit the row bits of the flags. They lie at the beginning of the window, before
// routeCounts. Decision 0121 has a table of them, with their writers and readers.
inline std::size_t lastingWords(const WindowLayout& at) {
  return static_cast<std::size_t>(at.routeCounts) / sizeof(Flag);
}

}  // namespace moe
