// A call that routes: moeRoute, and moeRouteDispatch, whose dispatch may route in its own step.
#pragma once

#include "comm/handle/handle.h"

namespace moe {

class RouteCall {
 public:
  // Checks the arguments. `name` is the call's, for its sentences.
  RouteCall(Handle& handle, const RouteArgs& args, const char* name);

  Handle& handle() const { return handle_; }
  const char* name() const { return name_; }
  const RouteArgs& args() const { return args_; }
  int bound() const { return bound_; }  // the most tokens of a rank

  // Makes the parameters of a step those of this route.
  void describe(StepParams* params) const;
  // Routes in a step of its own. `followed`: a dispatch will run beside it.
  void run(moeStream_t stream, bool followed = false) const;
  // Routes and starts the dispatch, in one step if it is one that routes.
  void runWith(Operation& dispatch, moeStream_t stream) const;

 private:
  void checkTokens() const;
  void startBeside(const Operation& dispatch, moeStream_t stream) const;
  void forgetDispatch(CommState& state) const;

  Handle& handle_;
  RouteArgs args_;
  const char* name_;
  int bound_;
};

}  // namespace moe
