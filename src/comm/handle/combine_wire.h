// The wire format of a combine.
#pragma once

#include "comm/handle/handle.h"

namespace moe {

void checkWire(const Handle& handle, const moeCombineArgs_t& args);

// `parts` with a byte for each element, as parts of whole units. Each part of a row with a float needs a copy of it.
Parts wireParts(const Parts& parts, const CombineArgs& args);

}  // namespace moe
