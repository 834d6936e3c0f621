// A combine of the rows that the handle's latest route has brought.
#pragma once

#include "comm/handle/combine_ready.h"
#include "comm/handle/combine_wire.h"
#include "comm/handle/handle.h"

namespace moe {

class CombineCall {
 public:
  CombineCall(Handle& handle, const moeCombineArgs_t& args);

  // What is to be launched. Throws unless all arguments are good.
  Operation& operation();

 private:
  // Checks: combine_checks.cc.
  void check() const;
  void checkCompleteSms() const;
  void checkGrads() const;
  void checkWeights() const;
  void checkPlaces() const;

  // Parameters.
  void takeArguments();
  void placeRows();

  Handle& handle_;
  const moeCombineArgs_t& args_;
  int tokens_;
  Operation operation_;
};

// What the rows of a combine are: their type and bytes, here and on the wire, and the terms that follow.
void describeRows(const moeCombineArgs_t& args, bool grads, CombineArgs* out);

// Chooses the launch of a combine whose arguments stand, and cuts its rows into parts.
struct CombinePlan {
  std::int32_t sms, completeSms;  // 0: the communicator's setting; that of the first part
  bool coded;                     // rows travel in a wire format
};
void planCombine(const Handle& handle, const CombinePlan& plan, Operation* operation);

}  // namespace moe
