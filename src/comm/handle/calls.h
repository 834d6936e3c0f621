// The calls of a handle, in the form of the C API. Each call is an object behind this page (route_call.h,
// dispatch_call.h, combine_call.h, refused_calls.h): it checks what the host can know before anything is launched, so a
// call that is refused leaves the handle as it was.
#pragma once

#include "comm/handle/handle.h"
#include "comm/handle/requests.h"

namespace moe {

// `args.tokens` may be moeTokensRefused: then this rank takes part with a refusal.
void route(Handle& handle, const RouteArgs& args, moeStream_t stream);
void routeDispatch(Handle& handle, const RouteArgs& route, const DispatchRequest& asked, moeStream_t stream);
// This rank takes part in a routeDispatch with a refusal instead of its arguments.
void refuseRouteDispatch(Handle& handle, moeStream_t stream);
// Both take part with a refusal if the flags have moeRefused.
void dispatch(Handle& handle, const DispatchRequest& asked, moeStream_t stream);
void combine(Handle& handle, const CombineRequest& asked, moeStream_t stream);
// Gives a dispatch that has been begun its outputs, and ends it.
void completeDispatch(Handle& handle, const DispatchRequest& asked, moeStream_t stream);

// It needs no handle.
void dispatchLayout(const void* topkIdx, int tokens, const moeDispatchLayout_t& layout, moeStream_t stream);

// These calls only refuse. They let the other ranks go on: comm/recorder/refused.h says how, and decision 0095 why.
void refuseRoute(Handle& handle, moeStream_t stream);
void refuseDispatch(Handle& handle, moeStream_t stream);
void refuseCombine(Handle& handle, const moeCombineArgs_t& args, moeStream_t stream);
// Writes the ids that a refused route uses, kRefusedIdsBytes in memory that steps can read: one token whose entries are
// invalid.
const std::uint8_t* writeRefusedIds(std::uint8_t* at, bool wideIndex);

// Launches the description of rows behind the operation that has brought them, if its caller asks for it.
void describeArrived(Handle& handle, Step step, const StepParams& params, moeStream_t stream);

}  // namespace moe
