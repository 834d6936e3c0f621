#include "comm/handle/route_call.h"

#include <fmt/format.h>

#include "comm/handle/call_checks.h"

namespace moe {

RouteCall::RouteCall(Handle& handle, const RouteArgs& args, const char* name)
    : handle_(handle), args_(args), name_(name), bound_(handle.tokensBound()) {
  checkTokens();
  if (args.topkIdx == nullptr && args.tokens > 0) refuse(fmt::format("topkIdx is NULL with {} tokens", args.tokens));
  requireAligned(args.topkIdx, "topkIdx", handle.indexBytes());
  requireAligned(args.topkWeights, "topkWeights", alignof(float));
  handle.checkNotPending(name);
}

// The name of the setting that bounds a route's tokens.
void RouteCall::checkTokens() const {
  const std::int32_t tokens = args_.tokens;
  if (tokens >= 0 && tokens <= bound_) return;
  const CommShape& comm = handle_.room().shape;
  const int most = handle_.shape().tokensMax, limit = handle_.lowLatency() ? comm.llTokensMax : comm.tokensMax;
  const char* bound = bound_ < most  ? "moeHandleSetTokensBound has set that"
                      : most < limit ? "config.tokensMax of the handle bounds it"
                      : handle_.lowLatency()
                          ? "config.llTokensMax of the communicator, or MOECOMM_LL_TOKENS_MAX, bounds it"
                          : "config.tokensMax of the communicator, or MOECOMM_TOKENS_MAX, bounds it";
  refuse(fmt::format("tokens is {}, must be 0..{} ({})", tokens, bound_, bound));
}

void RouteCall::describe(StepParams* params) const {
  params->route = args_;
  params->handle.tokensMax = bound_;
  params->handle.terms.y = static_cast<std::uint32_t>(bound_);
}

void RouteCall::run(moeStream_t stream, bool followed) const {
  StepParams p = handle_.params();
  describe(&p);
  p.route.followed = followed ? 1 : 0;
  p.handle.ticket = handle_.nextTicket(stream);
  handle_.counters().timeRoute(&p);
  const Workload work{Step::route, args_.tokens, args_.tokens, 0, handle_.comm().config().sms};
  handle_.launch(Step::route, p, handle_.backend().shapeFor(work), stream);
  handle_.noteRoute(p);
}

void RouteCall::startBeside(const Operation& dispatch, moeStream_t stream) const {
  try {
    handle_.start(dispatch, stream);
  } catch (...) {
    if (!handle_.backend().capturing(stream)) forgetDispatch(*dispatch.params.comm.state);
    throw;
  }
}

// The route counts a dispatch that does not run. The next one would take this route's announcement for that of its own.
void RouteCall::forgetDispatch(CommState& state) const {
  Backend& backend = handle_.backend();
  try {
    backend.synchronize();
    Flag placed = 0;
    backend.readWords(&placed, &state.routePlaced, 1);
    const std::uint64_t count = flagEpoch(placed);
    backend.copyToPrivate(&state.besideRoutes, &count, sizeof count);
  } catch (const Error&) {
    // The device has failed. The caller learns of the launch, which failed first.
  }
}

void RouteCall::runWith(Operation& dispatch, moeStream_t stream) const {
  if (!rowOf(dispatch.step).routes()) {
    const bool beside = handle_.backend().overlapsSteps() && mayRunBeside(dispatch.step, dispatch.params);
    dispatch.params.dispatch.besideRoute = beside ? 1 : 0;
    run(stream, beside);
    return beside ? startBeside(dispatch, stream) : handle_.start(dispatch, stream);
  }
  dispatch.params.handle.ticket = handle_.nextTicket(stream);
  handle_.start(dispatch, stream);
  handle_.noteRoute(dispatch.params);
}

}  // namespace moe
