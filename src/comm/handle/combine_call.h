// A combine of the rows that the handle's latest route has brought.
#pragma once

#include "comm/handle/handle.h"
#include "comm/handle/requests.h"

namespace moe {

class CombineCall {
 public:
  CombineCall(Handle& handle, const CombineRequest& asked);

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
  const CombineRequest& asked_;
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

// The words that a combine waits for before it reads rows (combine_ready.cc), and where each row has its word.
void checkReady(const Handle& handle, const CombineRequest& asked);
ReadyWords readyWords(const Handle& handle, const moeReady_t& ready);
// At least so many words are read. Only the device knows how many blocks EXPERT_MAJOR has: of those it is one.
std::int64_t readyWordCount(const Handle& handle, const moeReady_t& ready);

// The wire format of a combine (combine_wire.cc).
void checkWire(const Handle& handle, const moeCombineArgs_t& args);
// `parts` with a byte for each element, as parts of whole units. Each part of a row with a float needs a copy of it.
Parts wireParts(const Parts& parts, const CombineArgs& args);

}  // namespace moe
