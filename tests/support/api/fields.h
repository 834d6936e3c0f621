// The arguments of a dispatch or combine with the optional structs as members, any field of which a test may spoil.
#pragma once

#include <moecomm.h>

#include <optional>

namespace moe::test {

struct DispatchFields : moeDispatchArgs_t {
  DispatchFields() : moeDispatchArgs_t MOE_DISPATCH_ARGS_INITIALIZER {}

  moeCast_t cast = MOE_CAST_INITIALIZER;
  moeDescribe_t describe = MOE_DESCRIBE_INITIALIZER;

  // The arguments for a call. They point into this object, which must not move. The plain address would leave the
  // optional structs out.
  const moeDispatchArgs_t* linked() {
    moeDispatchArgs_t::cast = &cast;
    moeDispatchArgs_t::describe = &describe;
    return this;
  }
  void operator&() const = delete;
};

struct CombineFields : moeCombineArgs_t {
  CombineFields() : moeCombineArgs_t MOE_COMBINE_ARGS_INITIALIZER {}

  std::optional<moeGrads_t> grads;
  moeReady_t ready = MOE_READY_INITIALIZER;

  void carry(const float* weightGrads, float* outWeightGrads) {
    grads = moeGrads_t{sizeof(moeGrads_t), weightGrads, outWeightGrads};
  }
  const moeCombineArgs_t* linked() {
    moeCombineArgs_t::grads = grads.has_value() ? &*grads : nullptr;
    moeCombineArgs_t::ready = &ready;
    return this;
  }
  void operator&() const = delete;
};

}  // namespace moe::test
