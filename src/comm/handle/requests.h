// The request of a caller for a dispatch or combine, in structs of this version: the arguments, and copies of the
// optional structs that they point to. A struct that the caller left out has the values of its initializer.
#pragma once

#include <moecomm.h>

#include <array>

#include "device/view/payloads.h"

namespace moe {

struct DispatchRequest {
  // Throws if a struct or the number of payloads is not good. In a refusal only the arguments are read.
  explicit DispatchRequest(const moeDispatchArgs_t* user);

  moeDispatchArgs_t args;
  moeCast_t cast = MOE_CAST_INITIALIZER;
  moeDescribe_t describe = MOE_DESCRIBE_INITIALIZER;
  std::array<moePayload_t, kPayloadsMax> payloads;  // args.payloadCount of them
};

struct CombineRequest {
  explicit CombineRequest(const moeCombineArgs_t* user);  // the same

  bool carriesGrads() const { return args.grads != nullptr; }

  moeCombineArgs_t args;
  moeGrads_t grads = MOE_GRADS_INITIALIZER;
  moeReady_t ready = MOE_READY_INITIALIZER;
};

}  // namespace moe
