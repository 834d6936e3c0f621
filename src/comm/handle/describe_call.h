// Arrays about a route, for callers who ask. A step of their own fills them.
#pragma once

#include "comm/handle/handle.h"

namespace moe {

// Of a dispatch: checks what its arguments ask for.
DescribeArgs describeArgs(const Handle& handle, const moeDispatchArgs_t& args);
// Behind an operation that has brought rows, if its caller wants to know more of them.
void describeArrived(Handle& handle, const StepParams& params, moeStream_t stream);

}  // namespace moe
