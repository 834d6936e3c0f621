// Checks the memory arguments of dispatch and combine: which must be given, their alignment, and overlaps.
#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "comm/handle/argument_checks.h"
#include "comm/handle/handle.h"
#include "device/rows/row_math.h"

namespace moe {
namespace {

void refuseOutput(const void* pointer, const char* name, const char* why) {
  if (pointer == nullptr) return;
  throw Error(moeInvalidArgument, fmt::format("{} is {}, but {}", name, pointer, why));
}

// Checks that memory in the window lies in one block.
void requireBlocks(const Comm& comm, const auto& extents) {
  for (const Extent& extent : extents) {
    comm.windowOffset(extent.begin, static_cast<std::uint64_t>(extent.bytes), extent.name);
  }
}

// Checks that outputs share memory with no input and no other output.
void requireAllApart(const auto& outputs, const auto& inputs) {
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    if (outputs[i].begin == nullptr) continue;  // most of them, in every call
    for (const Extent& input : inputs) requireApart(outputs[i], input);
    for (std::size_t j = 0; j < i; ++j) requireApart(outputs[i], outputs[j]);
  }
}

}  // namespace

void Handle::checkOutputs(const Call& call, const moeDispatchArgs_t& args) const {
  if (args.outRowsMax < 0)
    throw Error(moeInvalidArgument, fmt::format("args.outRowsMax is {}, must be 0 or more", args.outRowsMax));
  if (args.sideBytes == 0) {
    refuseOutput(args.side, "args.side", "args.sideBytes is 0");
    refuseOutput(args.outSide, "args.outSide", "args.sideBytes is 0");
  }
  if (args.outRows == nullptr) refuseOutput(args.outSide, "args.outSide", "args.outRows is NULL");
  if (rowsPerExpert()) {
    refuseOutput(args.outTopkIdx, "args.outTopkIdx",
                 "the layout has one row per expert: it is for FLAT and RANK_MAJOR");
  }
  if (shape_.layout != Layout::expertMajor) {
    refuseOutput(args.outExpertOffsets, "args.outExpertOffsets", "the layout is not EXPERT_MAJOR");
  }
  const char* tokens = call.route != nullptr ? "with tokens" : "with tokens routed";
  if (call.tokens > 0) requirePointer(args.rows, "args.rows", tokens);
  if (call.tokens > 0 && args.sideBytes > 0) requirePointer(args.side, "args.side", "with args.sideBytes set");
  if (args.outRowsMax > 0) requirePointer(args.outRows, "args.outRows", "with args.outRowsMax above 0");
  if (args.outRowsMax > 0 && args.sideBytes > 0)
    requirePointer(args.outSide, "args.outSide", "with args.sideBytes set");
}

// A row has `rowBytes` bytes at its source and `outBytes` at its destination.
void Handle::checkPlaces(const Call& call, const moeDispatchArgs_t& args, std::int64_t rowBytes,
                         std::int64_t outBytes) const {
  const std::int64_t rows = std::min<std::int64_t>(args.outRowsMax, INT32_MAX);
  const std::int64_t weights = rowsPerExpert() ? 1 : shape_.topk, experts = shape_.map.count(room_.view.rank);
  const RouteArgs route = call.route != nullptr ? *call.route : RouteArgs{};
  const std::int64_t entries = std::int64_t{route.tokens} * shape_.topk;
  std::array<Extent, 6 + kPayloadsMax> inputs = {
      {{"args.rows", args.rows, call.tokens * rowBytes},
       {"args.side", args.side, call.tokens * std::int64_t{args.sideBytes}},
       {"topkIdx", route.topkIdx, entries * static_cast<std::int64_t>(indexBytes())},
       {"topkWeights", route.topkWeights, entries * static_cast<std::int64_t>(sizeof(float))},
       {"args.inputScale", args.inputScale, sizeof(float)},
       {"args.globalScale", args.globalScale, sizeof(float)}}};
  std::array<Extent, 13 + kPayloadsMax> outputs = {
      {{"args.outRows", args.outRows, rows * outBytes},
       {"args.outSide", args.outSide, rows * args.sideBytes},
       {"args.outTopkIdx", args.outTopkIdx, rows * shape_.topk * static_cast<std::int64_t>(indexBytes())},
       {"args.outTopkWeights", args.outTopkWeights, rows * weights * 4},
       {"args.outSourceIndex", args.outSourceIndex, rows * 4},
       {"args.outExpertOffsets", args.outExpertOffsets, (experts + 1) * 4},
       {"args.outLayoutRange", args.outLayoutRange, experts * room_.view.nranks * 8},
       {"args.outSourceInfo", args.outSourceInfo, rows * 12},
       {"args.outRowExperts", args.outRowExperts, rows * 4},
       {"args.cumulativeRows", args.cumulativeRows, experts * 4},
       {"args.cumulativeWaitNs", args.cumulativeWaitNs, std::int64_t{room_.view.nranks} * 8},
       {"args.outScaleBlockOffsets", args.outScaleBlockOffsets, (experts + 1) * 4},
       {"args.outScales", args.outScales, outScaleBytes(call, args)}}};
  const PayloadExtents from = payloadInputs(call, args), to = payloadOutputs(call, args);
  std::copy(from.begin(), from.end(), inputs.end() - kPayloadsMax);
  std::copy(to.begin(), to.end(), outputs.end() - kPayloadsMax);
  requireAligned(args.rows, "args.rows", kRowAlignment);
  requireAligned(args.side, "args.side", kRowAlignment);
  requireAligned(args.outRows, "args.outRows", kRowAlignment);
  requireAligned(args.outSide, "args.outSide", kRowAlignment);
  requireAligned(args.outTopkIdx, "args.outTopkIdx", indexBytes());
  requireAligned(args.outTopkWeights, "args.outTopkWeights", alignof(float));
  requireAligned(args.outSourceIndex, "args.outSourceIndex", alignof(std::int32_t));
  requireAligned(args.outExpertOffsets, "args.outExpertOffsets", alignof(std::int32_t));
  requireBlocks(comm_, inputs);
  requireBlocks(comm_, outputs);
  requireAllApart(outputs, inputs);
}

void Handle::checkWeights(const moeCombineArgs_t& args) const {
  if (args.weights != moeWeightsApplied && args.weights != moeWeightsApply) {
    throw Error(moeInvalidArgument, fmt::format("args.weights is {}, must be a moeWeights value", args.weights));
  }
  if (args.topkWeights == nullptr) return;
  const bool brings = shape_.combineWeights;
  if (brings && args.weights == moeWeightsApply) return;
  throw Error(moeInvalidArgument, fmt::format("args.topkWeights is {}, but {}", fmt::ptr(args.topkWeights),
                                              brings ? "args.weights is moeWeightsApplied"
                                                     : "the handle was made without config.combineWeights"));
}

// A rank without rows or tokens has no array for them. The step itself counts arrived rows.
void Handle::checkGrads(const moeCombineArgs_t& args) const {
  if (tokens_ == 0 || args.outWeightGrads != nullptr) return;
  const bool flag = (args.flags & moeCombineGrads) != 0;
  if (args.weightGrads == nullptr && !flag) return;
  throw Error(moeInvalidArgument,
              fmt::format("args.outWeightGrads is NULL with {} tokens routed, but {}", tokens_,
                          flag ? std::string("args.flags has moeCombineGrads")
                               : fmt::format("args.weightGrads is {}", static_cast<const void*>(args.weightGrads))));
}

static_assert(int{kPadIndices} == int{moePadIndices} && int{kPadRows} == int{moePadRows});
void Handle::checkPadding(const moeDispatchArgs_t& args) const {
  if ((args.padding & ~(moePadIndices | moePadRows)) != 0) {
    throw Error(moeInvalidArgument,
                fmt::format("args.padding is {}, must be made of moePadIndices and moePadRows", args.padding));
  }
  requireRange("args.idKind", args.idKind, moeIdsLocal, moeIdsGlobal);
  const bool inSlots = lowLatency() && shape_.layout == Layout::rankMajor && args.outRows == nullptr;
  if ((args.padding & moePadRows) == 0 || !inSlots) return;
  throw Error(moeInvalidArgument, "args.padding has moePadRows, but args.outRows is NULL, so that rows stay in slots");
}

// Only the device knows how many rows have arrived. Of arrays with an entry per arrival, one entry is checked.
void Handle::checkPlaces(const moeCombineArgs_t& args, std::int64_t rowBytes) const {
  const std::int64_t sums = tokens_ * rowBytes;
  for (const auto& [pointer, name] : {std::pair{args.rows, "args.rows"},
                                      {static_cast<const void*>(args.out), "args.out"},
                                      {args.bias0, "args.bias0"},
                                      {args.bias1, "args.bias1"}}) {
    requireAligned(pointer, name, kRowAlignment);
  }
  requireAligned(args.weightGrads, "args.weightGrads", alignof(float));
  requireAligned(args.outWeightGrads, "args.outWeightGrads", alignof(float));
  requireAligned(args.topkWeights, "args.topkWeights", alignof(float));
  const std::int64_t entries = std::int64_t{tokens_} * shape_.topk * static_cast<std::int64_t>(sizeof(float));
  // A bias may be the output itself, because a piece of it is read before the sum is stored there.
  const auto bias = [&](const char* name, const void* begin) {
    return Extent{name, begin == args.out ? nullptr : begin, sums};
  };
  const std::array<Extent, 3> outputs = {
      {{"args.out", args.out, sums},
       {"args.cumulativeWaitNs", args.cumulativeWaitNs, std::int64_t{room_.view.nranks} * 8},
       {"args.outWeightGrads", args.outWeightGrads, entries}}};
  const std::array<Extent, 6> inputs = {{{"args.rows", args.rows, rowBytes},
                                         bias("args.bias0", args.bias0),
                                         bias("args.bias1", args.bias1),
                                         {"args.topkWeights", args.topkWeights, entries},
                                         {"args.ready", args.ready, readyWordCount(args) * 4},
                                         {"args.weightGrads", args.weightGrads, 4}}};
  requireBlocks(comm_, outputs);
  requireBlocks(comm_, std::array<Extent, 4>{inputs[1], inputs[2], inputs[3], inputs[4]});
  requireAllApart(outputs, inputs);
}

}  // namespace moe
