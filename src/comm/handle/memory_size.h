// The memory that a communicator and its handles will take, without making them. docs/reference/memory.md.
#pragma once

#include <cstdint>

#include "comm/config/config.h"
#include "moecomm.h"

namespace moe {

// For moeCommGetMemorySize.
moeMemorySize_t memorySize(int nranks, const Config& config);

}  // namespace moe
