#include "comm/handle/calls.h"

#include "comm/handle/combine_call.h"
#include "comm/handle/dispatch_call.h"
#include "comm/handle/route_call.h"

namespace moe {

void route(Handle& handle, const RouteArgs& args, moeStream_t stream) {
  if (args.tokens == moeTokensRefused) return refuseRoute(handle, stream);
  RouteCall(handle, args, "moeRoute").run(stream);
}

void routeDispatch(Handle& handle, const RouteArgs& args, const DispatchRequest& asked, moeStream_t stream) {
  checkMayBeLate(handle, asked.args.flags, "moeRouteDispatch", stream);
  const RouteCall route(handle, args, "moeRouteDispatch");
  DispatchCall dispatch(route, asked);
  route.runWith(dispatch.operation(), stream);
}

void dispatch(Handle& handle, const DispatchRequest& asked, moeStream_t stream) {
  if ((asked.args.flags & moeRefused) != 0) return refuseDispatch(handle, stream);
  handle.checkRouted("moeDispatch");
  checkMayBeLate(handle, asked.args.flags, "moeDispatch", stream);
  handle.start(DispatchCall(handle, asked).operation(), stream);
}

void combine(Handle& handle, const CombineRequest& asked, moeStream_t stream) {
  if ((asked.args.flags & moeRefused) != 0) return refuseCombine(handle, asked.args, stream);
  handle.checkRouted("moeCombine");
  handle.start(CombineCall(handle, asked).operation(), stream);
}

}  // namespace moe
