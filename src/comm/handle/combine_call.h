// A combine of the rows that the handle's latest route has brought.
#pragma once

#include "comm/handle/handle.h"
#include "comm/handle/requests.h"

namespace moe {

class CombineCall {
 public:
  CombineCall(Handle& handle, const CombineRequest& asked);

  // The operation to launch. Throws unless all arguments are good.
  Operation& operation();

 private:
  // Checks: combine_checks.cc.
  void check() const;
  void checkCompleteSms() const;
  void checkGrads() const;
  void checkWeights() const;
  void checkPlaces() const;

  // Fill the parameters of the step.
  void takeArguments();
  void placeRows();

  Handle& handle_;
  const CombineRequest& asked_;
  const moeCombineArgs_t& args_;
  int tokens_;
  Operation operation_;
};

// Describes the rows of a combine: their type, their bytes here and on the wire, and the terms that follow from these.
// `split`: some ranks are in other domains. Coded rows then lie close, because rows are put one behind the other.
void describeRows(const moeCombineArgs_t& args, bool grads, bool split, CombineArgs* out);

// Chooses the launch of a combine whose arguments are set, and divides its rows into parts.
struct CombinePlan {
  std::int32_t sms, completeSms;  // if 0: for sms the communicator's setting, for completeSms that of the first part
  bool coded;                     // rows travel in a wire format
};
void planCombine(const Handle& handle, const CombinePlan& plan, Operation* operation);

// The words that a combine waits for before it reads rows (combine_ready.cc), and where each row has its word.
void checkReady(const Handle& handle, const CombineRequest& asked);
ReadyWords readyWords(const Handle& handle, const moeReady_t& ready);
// The least number of words that are read. For EXPERT_MAJOR it is 1, because only the device knows how many blocks
// there are.
std::int64_t readyWordCount(const Handle& handle, const moeReady_t& ready);

// The wire format of a combine (combine_wire.cc).
void checkWire(const Handle& handle, const moeCombineArgs_t& args);
// Converts `parts`, with a byte for each element, to parts of whole units. If rows carry a float, each part needs a
// copy of it.
Parts wireParts(const Parts& parts, const CombineArgs& args);

}  // namespace moe
