// What a caller asks a handle to do, as the C API says it. Each call is an object behind this page (route_call.h,
// dispatch_call.h, combine_call.h, refused_calls.h): it checks what the host can know before anything is launched, so a
// call that is refused leaves the handle as it was.
#pragma once

#include "comm/handle/handle.h"

namespace moe {

// `args.tokens` may be moeTokensRefused: then this rank takes part with a refusal.
void route(Handle& handle, const RouteArgs& args, moeStream_t stream);
void routeDispatch(Handle& handle, const RouteArgs& route, const moeDispatchArgs_t& args, moeStream_t stream);
// This rank takes part in a routeDispatch with a refusal instead of its arguments.
void refuseRouteDispatch(Handle& handle, moeStream_t stream);
// Both take part with a refusal if `args.flags` has moeRefused.
void dispatch(Handle& handle, const moeDispatchArgs_t& args, moeStream_t stream);
void combine(Handle& handle, const moeCombineArgs_t& args, moeStream_t stream);
void describeSent(Handle& handle, const moeSent_t& sent, moeStream_t stream);

}  // namespace moe
