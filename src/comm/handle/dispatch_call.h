// A dispatch: of a route that was made before, or together with one.
#pragma once

#include "comm/handle/dispatch_payloads.h"
#include "comm/handle/handle.h"
#include "comm/handle/output_grid.h"
#include "comm/handle/requests.h"
#include "comm/handle/route_call.h"

namespace moe {

class DispatchCall {
 public:
  DispatchCall(Handle& handle, const DispatchRequest& asked)
      : DispatchCall(handle, asked, nullptr, "moeDispatch", handle.tokens(), handle.view().tokensMax) {}
  DispatchCall(const RouteCall& route, const DispatchRequest& asked)
      : DispatchCall(route.handle(), asked, &route, route.name(), route.args().tokens, route.bound()) {}

  // What is to be launched. Throws unless all arguments are good.
  Operation& operation();

 private:
  DispatchCall(Handle& handle, const DispatchRequest& asked, const RouteCall* route, const char* name, int tokens,
               int bound);

  bool sendsOnly() const { return (args_.flags & moeSendOnly) != 0; }
  Step step() const;

  // Checks: dispatch_checks.cc.
  void check() const;
  void checkPadding() const;
  void checkOutputs() const;
  void checkPlaces(const DispatchPayloads& payloads) const;

  // Parameters.
  void takeArguments(const DispatchPayloads& payloads);
  const float* rowWeights() const;
  void placeOutput(const DispatchPayloads& payloads);
  void plan();

  Handle& handle_;
  const DispatchRequest& asked_;
  const moeDispatchArgs_t& args_;
  const RouteCall* route_;  // that the same call makes; NULL: it was made before
  const char* name_;
  int tokens_;       // of the route
  OutputGrid grid_;  // of the output
  Operation operation_;
};

// The cast of a dispatch (dispatch_cast.cc): checks its arguments and says where its scales go; rowWeights is left
// open. Without a cast: that nothing asks for scales.
CastArgs castArgs(const DispatchRequest& asked, const OutputGrid& grid);
// Of args.cast.outScales.
std::int64_t outScaleBytes(const DispatchRequest& asked, const OutputGrid& grid);

// Arrays about a route (describe_call.cc): checks what the arguments ask for.
DescribeArgs describeArgs(const Handle& handle, const moeDescribe_t& describe);

}  // namespace moe
