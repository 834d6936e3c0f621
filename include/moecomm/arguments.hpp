// The arguments of moecomm.hpp's calls: the C structs with their defaults, and setters that know the sizes of arrays.
// Included by moecomm.hpp.
#ifndef MOECOMM_ARGUMENTS_HPP_
#define MOECOMM_ARGUMENTS_HPP_

#include <moecomm.h>

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <string>
#include <type_traits>

#include <moecomm/basics.hpp>

namespace moecomm {

// moeConfig_t with its defaults. All fields are there: config.tokensMax = 128.
struct Config : moeConfig_t {
  Config() noexcept : moeConfig_t MOE_CONFIG_INITIALIZER {}
};

// moeHandleConfig_t with its defaults.
struct HandleConfig : moeHandleConfig_t {
  HandleConfig() noexcept : moeHandleConfig_t MOE_HANDLE_CONFIG_INITIALIZER {}
  HandleConfig(std::int32_t expertCount, std::int32_t topkCount, std::int32_t rowLayout = moeLayoutFlat) noexcept
      : HandleConfig() {
    experts = expertCount;
    topk = topkCount;
    layout = rowLayout;
  }
};

// moePlacement_t of host arrays, which a call reads before it returns: an expert for each place of the handle, or
// experts with their ranks and local experts.
struct Placement : moePlacement_t {
  Placement(std::int32_t logicalCount, Span<const std::int32_t> logicalOf) : moePlacement_t MOE_PLACEMENT_INITIALIZER {
    logicalExperts = logicalCount;
    physicalExperts = detail::toInt32("the number of physical experts", logicalOf.size());
    logical = logicalOf.data();
  }
  Placement(std::int32_t logicalCount, Span<const std::int32_t> logicalOf, Span<const std::int32_t> ranksOf,
            Span<const std::int32_t> localExpertsOf)
      : Placement(logicalCount, logicalOf) {
    ranks = ranksOf.data();
    localExperts = localExpertsOf.data();
    detail::Extent(ranksOf).require("ranks", ranks, {{"physicalExperts", physicalExperts}});
    detail::Extent(localExpertsOf).require("localExperts", localExperts, {{"physicalExperts", physicalExperts}});
  }
};

// Where the tokens of a rank go: topkIdx [tokens][topk], and topkWeights [tokens][topk], empty for 1.0 everywhere. Both
// are device memory, as in moeRoute. The number of tokens follows from the size of topkIdx; a rank without tokens
// passes {}.
class Routing {
 public:
  Routing() noexcept = default;
  Routing(Span<const std::int32_t> topkIdx, Span<const float> topkWeights = {}) noexcept
      : Routing(topkIdx, topkWeights, moeIndexInt32) {}
  Routing(Span<const std::int64_t> topkIdx, Span<const float> topkWeights = {}) noexcept
      : Routing(topkIdx, topkWeights, moeIndexInt64) {}
  // Plain addresses, whose sizes nobody checks.
  Routing(const void* topkIdx, const float* topkWeights, std::int32_t tokens) noexcept
      : idx_(topkIdx), weights_(topkWeights), tokens_(tokens) {}

 private:
  friend class Handle;
  template <class Index>
  Routing(Span<Index> topkIdx, Span<const float> topkWeights, std::int32_t indexType) noexcept
      : idx_(topkIdx.data()),
        weights_(topkWeights.empty() ? nullptr : topkWeights.data()),
        entries_(topkIdx.size()),
        weightsExtent_(topkWeights),
        indexType_(indexType) {}

  // The tokens, after a check of both arrays.
  std::int32_t require(const detail::Shape& shape) const {
    if (tokens_ >= 0) return tokens_;
    if (entries_ > 0) detail::requireIndexType("topkIdx", indexType_, shape.indexType);
    const auto topk = static_cast<std::size_t>(shape.topk);
    if (entries_ % topk != 0)
      throw Error(moeInvalidArgument, "topkIdx has " + std::to_string(entries_) +
                                          " elements, must have [tokens][topk] with topk " + std::to_string(topk));
    const std::int32_t tokens = detail::toInt32("tokens", entries_ / topk);
    weightsExtent_.require("topkWeights", weights_, {{"tokens", tokens}, {"topk", shape.topk}});
    return tokens;
  }

  const void* idx_ = nullptr;
  const float* weights_ = nullptr;
  std::size_t entries_ = 0;
  detail::Extent weightsExtent_;
  std::int32_t indexType_ = moeIndexInt32;
  std::int32_t tokens_ = -1;  // -1: as the size of topkIdx says
};

// moePayload_t with its defaults: dense rows of `rowBytes` bytes on both sides. Addresses are passed on unchecked.
struct Payload : moePayload_t {
  Payload() noexcept : moePayload_t MOE_PAYLOAD_INITIALIZER {}
  Payload(const void* source, void* sink, std::int32_t rowBytes, std::int32_t layout = moeScalesRowMajor) noexcept
      : Payload() {
    in = source;
    out = sink;
    bytes = rowBytes;
    outLayout = layout;
  }
};
static_assert(sizeof(Payload) == sizeof(moePayload_t));

// ---- Dispatch -------------------------------------------------------------------------------------------------------

// moeDispatchArgs_t with its defaults. All fields are there; moecomm.h says what they mean, which memory arrays are in,
// and how long they must live. An address that is stored to a field is passed on unchecked. The setters take arrays
// with sizes, and fill the fields that follow from them. Each call compares these sizes with the handle and its route
// before it calls the library: Error with moeInvalidArgument names the argument. Arrays may be larger. The struct may
// be used for many calls; it keeps addresses and sizes as they were when they were set.
class DispatchArgs : public moeDispatchArgs_t {
 public:
  DispatchArgs() noexcept : moeDispatchArgs_t MOE_DISPATCH_ARGS_INITIALIZER {}
  // With setRows.
  template <class Rows, class OutRows>
  DispatchArgs(const Rows& in, OutRows&& out, std::int32_t elements) : DispatchArgs() {
    setRows(in, out, elements);
  }

  // rows [tokens][hidden], and outRows [outRows][hidden] of the same type. The type gives rowType, and the size of
  // outRows gives outRowsMax. An LL handle of layout RANK_MAJOR takes an empty outRows.
  template <class Rows, class OutRows>
  void setRows(const Rows& in, OutRows&& out, std::int32_t elements) {
    const Span source(in);
    const Span sink(out);
    using Element = std::remove_const_t<std::remove_pointer_t<decltype(source.data())>>;
    static_assert(std::is_same_v<Element*, decltype(sink.data())>, "outRows must hold the type that rows holds");
    cast = moeCastNone;
    setSource(source, elements);
    setSink(sink, elements, rowType == moeRowBytes ? sizeof(Element) : 1);
  }

  // The same with a cast: outRows [outRows][hidden] codes of one byte, of MXFP4 and NVFP4 [outRows][hidden / 2] bytes
  // of two codes. outScales in elements of four bytes.
  //   kind    moeCast value but moeCastNone
  //   layout  moeScales value
  template <class Rows, class OutRows, class OutScales>
  void setCastRows(std::int32_t kind, const Rows& in, OutRows&& codes, OutScales&& scales, std::int32_t elements,
                   std::int32_t layout = moeScalesRowMajor) {
    const Span sink(codes);
    const Span words(scales);
    static_assert(sizeof(*sink.data()) == 1, "outRows must hold codes of one byte");
    static_assert(sizeof(*words.data()) == 4, "outScales must hold floats or words of 32 bits");
    setSource(Span(in), elements);
    cast = kind;
    setSink(sink, static_cast<std::int32_t>(codeBytes()), 1);
    scaleLayout = layout;
    outScales = words.data();
    scalesExtent_ = detail::Extent(words);
  }

  // Of a cast: one number each.
  void setInputScale(Span<const float> number) { set(inputScale, inputScaleExtent_, number); }
  void setGlobalScale(Span<const float> number) { set(globalScale, globalScaleExtent_, number); }

  // side [tokens][sideBytes] and outSide [outRows][sideBytes], in elements of any type.
  //   bytes  sideBytes
  template <class Side, class OutSide>
  void setSide(const Side& in, OutSide&& out, std::int32_t bytes) {
    const Span source(in);
    const Span sink(out);
    side = source.data();
    outSide = sink.data();
    sideBytes = bytes;
    sideExtent_ = detail::Extent(source);
    sideExtent_.elements *= sizeof(*source.data());
    outSideExtent_ = detail::Extent(sink);
    outSideExtent_.elements *= sizeof(*sink.data());
  }

  // Instead of side: up to four payloads, which are read by each call. The array lives as long.
  void setPayloads(Span<const Payload> array) {
    payloads = array.data();
    payloadCount = detail::toInt32("the number of payloads", array.size());
    payloadExtent_ = detail::Extent(array);
  }

  void setOutTopkIdx(Span<std::int32_t> array) { setTopkIdx(array, moeIndexInt32); }
  void setOutTopkIdx(Span<std::int64_t> array) { setTopkIdx(array, moeIndexInt64); }
  void setOutTopkWeights(Span<float> array) { set(outTopkWeights, weightsExtent_, array); }
  void setOutSourceIndex(Span<std::int32_t> array) { set(outSourceIndex, sourceIndexExtent_, array); }
  void setOutExpertOffsets(Span<std::int32_t> array) { set(outExpertOffsets, offsetsExtent_, array); }
  void setOutScaleBlockOffsets(Span<std::int32_t> array) { set(outScaleBlockOffsets, blocksExtent_, array); }
  void setOutLayoutRange(Span<std::int64_t> array) { set(outLayoutRange, rangeExtent_, array); }
  void setOutSourceInfo(Span<std::int32_t> array) { set(outSourceInfo, infoExtent_, array); }
  void setOutRowExperts(Span<std::int32_t> array) { set(outRowExperts, expertsExtent_, array); }
  void setCumulativeRows(Span<std::int32_t> array) { set(cumulativeRows, cumulativeExtent_, array); }
  void setCumulativeWaitNs(Span<std::int64_t> array) { set(cumulativeWaitNs, waitExtent_, array); }

 private:
  friend class Handle;

  template <class T>
  static void set(T*& field, detail::Extent& extent, Span<T> array) {
    field = array.data();
    extent = detail::Extent(array);
  }
  template <class T>
  void setTopkIdx(Span<T> array, std::int32_t type) {
    outTopkIdx = array.data();
    topkIdxExtent_ = detail::Extent(array);
    indexType_ = type;
  }
  template <class T>
  void setSource(Span<T> array, std::int32_t elements) {
    using Element = std::remove_const_t<T>;
    rows = array.data();
    rowType = RowType<Element>::value;
    hidden = detail::hiddenOf<Element>(elements);
    rowsExtent_ = detail::Extent(array);
    if (rowType == moeRowBytes) rowsExtent_.elements *= sizeof(T);
  }
  // `unit`: how many of hidden's units an element of outRows has.
  template <class T>
  void setSink(Span<T> array, std::int32_t elements, std::size_t unit) {
    outRows = array.data();
    outRowsMax = static_cast<std::int64_t>(detail::rowsIn(array.size(), elements));
    outRowsExtent_ = detail::Extent(array);
    outRowsExtent_.elements *= unit;
  }

  void require(const detail::Shape& shape) const {
    if (shape.tokens < 0) return;
    const std::int64_t places = shape.places();
    const detail::Axis row{"outRows", places >= 0 ? places : std::max<std::int64_t>(outRowsMax, 0)};
    // Of the rows themselves, those that outRowsMax admits. If more come, all ranks hear of it from the library.
    const bool all = (padding & moePadRows) != 0 || outRows == nullptr;
    const detail::Axis filled{"outRows", all ? row.size : std::max<std::int64_t>(outRowsMax, 0)};
    const detail::Axis token{"tokens", shape.tokens}, topk{"topk", shape.topk};
    const detail::Axis expert{"localExperts", shape.localExperts};
    rowsExtent_.require("args.rows", rows, {token, {"hidden", hidden}});
    sideExtent_.require("args.side", side, {token, {"sideBytes", sideBytes}});
    payloadExtent_.require("args.payloads", payloads, {{"payloadCount", payloadCount}});
    outRowsExtent_.require("args.outRows", outRows, {filled, rowAxis()});
    outSideExtent_.require("args.outSide", outSide, {filled, {"sideBytes", sideBytes}});
    if (scaleLayout == moeScales128x4) {
      scalesExtent_.require("args.outScales", outScales,
                            {{"blocks", scaleBlocks(shape)}, {"words", scaleWords()}, {"128", 128}});
    } else {
      scalesExtent_.require("args.outScales", outScales, {filled, {"words", scaleWords()}});
    }
    blocksExtent_.require("args.outScaleBlockOffsets", outScaleBlockOffsets,
                          {{"localExperts + 1", shape.localExperts + 1}});
    inputScaleExtent_.require("args.inputScale", inputScale, {{"1", 1}});
    globalScaleExtent_.require("args.globalScale", globalScale, {{"1", 1}});
    if (topkIdxExtent_.data != nullptr && topkIdxExtent_.data == outTopkIdx)
      detail::requireIndexType("args.outTopkIdx", indexType_, shape.indexType);
    topkIdxExtent_.require("args.outTopkIdx", outTopkIdx, {row, topk});
    if (shape.hasRowPerExpert()) {
      weightsExtent_.require("args.outTopkWeights", outTopkWeights, {row});
    } else {
      weightsExtent_.require("args.outTopkWeights", outTopkWeights, {row, topk});
    }
    sourceIndexExtent_.require("args.outSourceIndex", outSourceIndex, {row});
    offsetsExtent_.require("args.outExpertOffsets", outExpertOffsets, {{"localExperts + 1", shape.localExperts + 1}});
    rangeExtent_.require("args.outLayoutRange", outLayoutRange, {expert, {"nranks", shape.nranks}});
    infoExtent_.require("args.outSourceInfo", outSourceInfo, {row, {"3", 3}});
    expertsExtent_.require("args.outRowExperts", outRowExperts, {row});
    cumulativeExtent_.require("args.cumulativeRows", cumulativeRows, {expert});
    waitExtent_.require("args.cumulativeWaitNs", cumulativeWaitNs, {{"nranks", shape.nranks}});
  }
  bool packsTwo() const noexcept { return cast == moeCastMxfp4 || cast == moeCastNvfp4; }
  std::int64_t codeBytes() const noexcept { return packsTwo() ? hidden / 2 : hidden; }
  detail::Axis rowAxis() const {
    return packsTwo() ? detail::Axis{"hidden / 2", codeBytes()} : detail::Axis{"hidden", hidden};
  }
  // 32-bit words of a row's scales. A word has one fp32 for 128 elements, or four bytes, each for a block.
  std::int64_t scaleWords() const noexcept {
    if (cast == moeCastNvfp4) return hidden / 64;
    const std::int32_t blocks = hidden / 128;
    return cast == moeCastFp8Ue8m0 ? (blocks + 3) / 4 : blocks;
  }

  // Blocks of scales in all groups of rows, with moeScales128x4.
  std::int64_t scaleBlocks(const detail::Shape& shape) const noexcept {
    const auto blocks = [](std::int64_t count) { return (count + 127) / 128; };
    const std::int64_t most = std::max<std::int64_t>(outRowsMax, 0), experts = shape.localExperts;
    if (shape.layout == moeLayoutFlat) return blocks(most);
    if (shape.layout == moeLayoutRankMajor) return shape.nranks * blocks(shape.bound);
    if (shape.layout == moeLayoutExpertMajorPadded) return experts * blocks(std::int64_t{shape.nranks} * shape.bound);
    return (most + experts * (128 - std::gcd(shape.alignment, 128))) / 128;
  }

  detail::Extent rowsExtent_, sideExtent_, outRowsExtent_, outSideExtent_, scalesExtent_, topkIdxExtent_;
  detail::Extent weightsExtent_, sourceIndexExtent_, offsetsExtent_, rangeExtent_, infoExtent_, expertsExtent_;
  detail::Extent cumulativeExtent_, waitExtent_, inputScaleExtent_, globalScaleExtent_, blocksExtent_, payloadExtent_;
  std::int32_t indexType_ = moeIndexInt32;
};

// ---- Combine --------------------------------------------------------------------------------------------------------

// moeCombineArgs_t with its defaults, in the same way. What `rows` must have is known with the host backend, in the
// layouts RANK_MAJOR and EXPERT_MAJOR_PADDED, and once counts() has been asked for this route. Otherwise the size of
// rows and weightGrads is not checked.
class CombineArgs : public moeCombineArgs_t {
 public:
  CombineArgs() noexcept : moeCombineArgs_t MOE_COMBINE_ARGS_INITIALIZER {}
  // With setRows.
  template <class Rows, class Out>
  CombineArgs(const Rows& in, Out&& sums, std::int32_t elements) : CombineArgs() {
    setRows(in, sums, elements);
  }

  // rows [outRows][hidden] and out [tokens][hidden] of the same type, which gives rowType.
  template <class Rows, class Out>
  void setRows(const Rows& in, Out&& sums, std::int32_t elements) {
    const Span source(in);
    const Span sink(sums);
    using Element = std::remove_const_t<std::remove_pointer_t<decltype(source.data())>>;
    static_assert(std::is_same_v<Element*, decltype(sink.data())>, "out must hold the type that rows holds");
    static_assert(RowType<Element>::value != moeRowBytes, "combine sums a type that moecomm::RowType knows");
    rows = source.data();
    out = sink.data();
    rowType = RowType<Element>::value;
    hidden = elements;
    rowsExtent_ = detail::Extent(source);
    outExtent_ = detail::Extent(sink);
  }

  // [tokens][hidden] of the row type that setRows has set: call it first. May be `out` itself.
  template <class Bias>
  void setBias0(const Bias& array) {
    setBias("args.bias0", bias0, bias0Extent_, Span(array));
  }
  template <class Bias>
  void setBias1(const Bias& array) {
    setBias("args.bias1", bias1, bias1Extent_, Span(array));
  }

  // weightGrads as outTopkWeights of dispatch, outWeightGrads [tokens][topk].
  void setWeightGrads(Span<const float> grads, Span<float> outGrads) {
    weightGrads = grads.data();
    outWeightGrads = outGrads.data();
    gradsExtent_ = detail::Extent(grads);
    outGradsExtent_ = detail::Extent(outGrads);
  }
  // [tokens][topk], for moeWeightsApply in a handle with config.combineWeights.
  void setTopkWeights(Span<const float> array) {
    topkWeights = array.data();
    topkWeightsExtent_ = detail::Extent(array);
  }
  void setCumulativeWaitNs(Span<std::int64_t> array) {
    cumulativeWaitNs = array.data();
    waitExtent_ = detail::Extent(array);
  }
  // Words of blocks of `blockRows` rows (0: of experts), which are there when their word has reached `value`. With
  // blocks the size of the array is checked in the layout EXPERT_MAJOR_PADDED alone.
  void setReady(Span<const std::uint32_t> words, std::int32_t blockRows, std::uint32_t value) {
    ready = words.data();
    readyRows = blockRows;
    readyValue = value;
    readyExtent_ = detail::Extent(words);
  }

 private:
  friend class Handle;

  template <class T>
  void setBias(const char* name, const void*& field, detail::Extent& extent, Span<T> array) {
    if (RowType<std::remove_const_t<T>>::value != rowType)
      throw Error(moeInvalidArgument, std::string(name) + " holds another type than args.rows, see setRows");
    field = array.data();
    extent = detail::Extent(array);
  }

  void require(const detail::Shape& shape) const {
    if (shape.tokens < 0) return;
    const std::int64_t places = shape.places();
    const detail::Axis row{"outRows", places >= 0 ? places : shape.layoutRows};
    const detail::Axis token{"tokens", shape.tokens}, topk{"topk", shape.topk}, width{"hidden", hidden};
    if (row.size >= 0 && shape.arrived != 0) {  // where nothing came, nothing is read
      rowsExtent_.require("args.rows", rows, {row, width});
      gradsExtent_.require("args.weightGrads", weightGrads,
                           {row, shape.hasRowPerExpert() ? detail::Axis{"1", 1} : topk});
    }
    outExtent_.require("args.out", out, {token, width});
    bias0Extent_.require("args.bias0", bias0, {token, width});
    bias1Extent_.require("args.bias1", bias1, {token, width});
    outGradsExtent_.require("args.outWeightGrads", outWeightGrads, {token, topk});
    topkWeightsExtent_.require("args.topkWeights", topkWeights, {token, topk});
    waitExtent_.require("args.cumulativeWaitNs", cumulativeWaitNs, {{"nranks", shape.nranks}});
    requireReady(shape);
  }
  void requireReady(const detail::Shape& shape) const {
    const detail::Axis experts{"localExperts", shape.localExperts};
    if (readyRows <= 0) return readyExtent_.require("args.ready", ready, {experts});
    if (shape.layout != moeLayoutExpertMajorPadded) return;
    const std::int64_t places = std::int64_t{shape.nranks} * shape.bound;
    readyExtent_.require("args.ready", ready, {experts, {"blocks", (places + readyRows - 1) / readyRows}});
  }

  detail::Extent rowsExtent_, outExtent_, bias0Extent_, bias1Extent_, gradsExtent_, outGradsExtent_;
  detail::Extent topkWeightsExtent_, waitExtent_, readyExtent_;
};

}  // namespace moecomm
#endif  // MOECOMM_ARGUMENTS_HPP_
