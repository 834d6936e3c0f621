// Checks the arguments of a combine: which must be given, their alignment, and overlaps.
#include <fmt/format.h>

#include <array>

#include "comm/handle/call_checks.h"
#include "comm/handle/combine_call.h"
#include "device/rows/row_math.h"

namespace moe {

void CombineCall::check() const {
  checkRow(handle_.room(), args_.rowType, args_.hidden, "moeCombine");
  checkFlags(args_.flags, moeSendOnly, "moeSendOnly or 0", args_.sms);
  checkCompleteSms();
  if (args_.rowType == moeRowBytes) refuse("args.rowType is opaque bytes, which cannot be summed");
  if (tokens_ > 0) requirePointer(args_.out, "args.out", "with tokens routed");
  checkGrads();
  checkWeights();
  checkWire(handle_, args_);
  checkReady(handle_, asked_);
  checkPlaces();
}

void CombineCall::checkCompleteSms() const {
  const std::int32_t sms = asked_.ready.completeSms;
  if (sms < 0) refuse(fmt::format("args.ready.completeSms is {}, must be 0 or more", sms));
  if (sms == 0 || (args_.flags & moeSendOnly) != 0) return;
  refuse(fmt::format("args.ready.completeSms is {}, but args.flags has no moeSendOnly", sms));
}

void CombineCall::checkWeights() const {
  if (args_.weights != moeWeightsApplied && args_.weights != moeWeightsApply) {
    refuse(fmt::format("args.weights is {}, must be a moeWeights value", args_.weights));
  }
  if (args_.topkWeights == nullptr) return;
  const bool brings = handle_.shape().combineWeights;
  if (brings && args_.weights == moeWeightsApply) return;
  refuse(
      fmt::format("args.topkWeights is {}, but {}", fmt::ptr(args_.topkWeights),
                  brings ? "args.weights is moeWeightsApplied" : "the handle was made without config.combineWeights"));
}

// A rank without rows or tokens has no array for them. The step itself counts arrived rows.
void CombineCall::checkGrads() const {
  if (tokens_ == 0 || !asked_.carriesGrads() || asked_.grads.outWeightGrads != nullptr) return;
  refuse(fmt::format("args.grads.outWeightGrads is NULL with {} tokens routed", tokens_));
}

// Only the device knows how many rows have arrived. In arrays with an entry per arrival, one entry is checked.
void CombineCall::checkPlaces() const {
  const std::int64_t rowBytes = std::int64_t{args_.hidden} * elementBytes(args_.rowType), sums = tokens_ * rowBytes;
  for (const auto& [pointer, name] : {std::pair{args_.rows, "args.rows"},
                                      {static_cast<const void*>(args_.out), "args.out"},
                                      {args_.bias0, "args.bias0"},
                                      {args_.bias1, "args.bias1"}}) {
    requireAligned(pointer, name, kRowAlignment);
  }
  const moeGrads_t& grads = asked_.grads;
  requireAligned(grads.weightGrads, "args.grads.weightGrads", alignof(float));
  requireAligned(grads.outWeightGrads, "args.grads.outWeightGrads", alignof(float));
  requireAligned(args_.topkWeights, "args.topkWeights", alignof(float));
  const std::int64_t entries = std::int64_t{tokens_} * handle_.shape().topk * static_cast<std::int64_t>(sizeof(float));
  // A bias may be the output itself, because a piece of it is read before the sum is stored there.
  const auto bias = [&](const char* name, const void* begin) {
    return Extent{name, begin == args_.out ? nullptr : begin, sums};
  };
  const std::array<Extent, 3> outputs = {
      {{"args.out", args_.out, sums},
       {"args.cumulativeWaitNs", args_.cumulativeWaitNs, std::int64_t{handle_.room().view.nranks} * 8},
       {"args.grads.outWeightGrads", grads.outWeightGrads, entries}}};
  const std::array<Extent, 6> inputs = {
      {{"args.rows", args_.rows, rowBytes},
       bias("args.bias0", args_.bias0),
       bias("args.bias1", args_.bias1),
       {"args.topkWeights", args_.topkWeights, entries},
       {"args.ready.words", asked_.ready.words, readyWordCount(handle_, asked_.ready) * 4},
       {"args.grads.weightGrads", grads.weightGrads, 4}}};
  requireBlocks(handle_.comm(), outputs);
  requireBlocks(handle_.comm(), std::array<Extent, 4>{inputs[1], inputs[2], inputs[3], inputs[4]});
  requireAllApart(outputs, inputs);
}

}  // namespace moe
