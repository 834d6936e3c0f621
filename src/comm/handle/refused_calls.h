// The calls of a handle in which this rank takes part with a refusal instead of its arguments (moeRefused), so that the
// others need not wait for it: comm/recorder/refused.h says how. Decision 0095. calls.h has refuseRouteDispatch.
#pragma once

#include "comm/handle/handle.h"

namespace moe {

void refuseRoute(Handle& handle, moeStream_t stream);
void refuseDispatch(Handle& handle, moeStream_t stream);
void refuseCombine(Handle& handle, const moeCombineArgs_t& args, moeStream_t stream);

// What such calls route: writes kRefusedIdsBytes to memory that steps can read, a token whose entries cannot be.
const std::uint8_t* writeRefusedIds(std::uint8_t* at, bool wideIndex);

}  // namespace moe
