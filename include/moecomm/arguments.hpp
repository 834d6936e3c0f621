// The arguments of moecomm.hpp's calls: the C structs with their defaults, and setters that know the sizes of arrays.
// Included by moecomm.hpp.
#ifndef MOECOMM_ARGUMENTS_HPP_
#define MOECOMM_ARGUMENTS_HPP_

#include <moecomm.h>

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <optional>
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
  friend void countLayout(const Routing& routing, moeDispatchLayout_t layout, moeStream_t stream);
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
    const std::int32_t tokens = tokensOf(shape.topk);
    weightsExtent_.require("topkWeights", weights_, {{"tokens", tokens}, {"topk", shape.topk}});
    return tokens;
  }

  // The tokens of arrays with `entries` entries per token. The library refuses less than one.
  std::int32_t tokensOf(std::int32_t entries) const {
    if (tokens_ >= 0) return tokens_;
    const std::size_t topk = entries > 0 ? static_cast<std::size_t>(entries) : 1;
    if (entries_ % topk != 0)
      throw Error(moeInvalidArgument, "topkIdx has " + std::to_string(entries_) +
                                          " elements, must have [tokens][topk] with topk " + std::to_string(topk));
    return detail::toInt32("tokens", entries_ / topk);
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

// moeDispatchArgs_t with its defaults, and the optional structs that it points to as members. All fields are there;
// moecomm.h says what they mean, which memory arrays are in, and how long they must live. An address that is stored to
// a field is passed on unchecked. The setters take arrays with sizes, and fill the fields that follow from them. Each
// call compares these sizes with the handle and its route before it calls the library: Error with moeInvalidArgument
// names the argument. Arrays may be larger. The struct may be used for many calls; it keeps addresses and sizes as they
// were when they were set.
class DispatchArgs : private moeDispatchArgs_t {
 public:
  using moeDispatchArgs_t::flags;
  using moeDispatchArgs_t::hidden;
  using moeDispatchArgs_t::outRows;
  using moeDispatchArgs_t::outRowsMax;
  using moeDispatchArgs_t::padding;
  using moeDispatchArgs_t::payloadCount;
  using moeDispatchArgs_t::payloads;
  using moeDispatchArgs_t::rows;
  using moeDispatchArgs_t::rowType;
  using moeDispatchArgs_t::sms;
  moeCast_t cast = MOE_CAST_INITIALIZER;
  moeDescribe_t describe = MOE_DESCRIBE_INITIALIZER;

  DispatchArgs() noexcept : moeDispatchArgs_t MOE_DISPATCH_ARGS_INITIALIZER {}
  // With setRows.
  template <class Rows, class OutRows>
  DispatchArgs(const Rows& in, OutRows&& out, std::int32_t elements) : DispatchArgs() {
    setRows(in, out, elements);
  }

  // The struct for the C functions, valid as long as this object lives and does not change.
  moeDispatchArgs_t native() const noexcept {
    moeDispatchArgs_t args = *this;
    args.cast = &cast;
    args.describe = &describe;
    if (payloads == nullptr && payloadCount == 1) args.payloads = &payload_;
    return args;
  }

  // rows [tokens][hidden], and outRows [outRows][hidden] of the same type. The type gives rowType, and the size of
  // outRows gives outRowsMax. An LL handle of layout RANK_MAJOR takes an empty outRows.
  template <class Rows, class OutRows>
  void setRows(const Rows& in, OutRows&& out, std::int32_t elements) {
    const Span source(in);
    const Span sink(out);
    using Element = std::remove_const_t<std::remove_pointer_t<decltype(source.data())>>;
    static_assert(std::is_same_v<Element*, decltype(sink.data())>, "outRows must hold the type that rows holds");
    cast.type = moeCastNone;
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
    cast.type = kind;
    setSink(sink, static_cast<std::int32_t>(codeBytes()), 1);
    cast.scaleLayout = layout;
    cast.outScales = words.data();
    scalesExtent_ = detail::Extent(words);
  }

  // Factors of a cast: one number each.
  void setInputScale(Span<const float> number) { set(cast.inputScale, inputScaleExtent_, number); }
  void setGlobalScale(Span<const float> number) { set(cast.globalScale, globalScaleExtent_, number); }

  // One payload as an array: rows [tokens][bytes] and their output [outRows][bytes], in elements of any type.
  template <class In, class Out>
  void setPayload(const In& in, Out&& out, std::int32_t bytes) {
    const Span source(in);
    const Span sink(out);
    payload_ = Payload(source.data(), sink.data(), bytes, moePayloadArray);
    payloads = nullptr;
    payloadCount = 1;
    payloadIn_ = detail::Extent(source);
    payloadIn_.elements *= sizeof(*source.data());
    payloadOut_ = detail::Extent(sink);
    payloadOut_.elements *= sizeof(*sink.data());
  }
  // Up to four payloads, which are read by each call. The array lives as long.
  void setPayloads(Span<const Payload> array) {
    payloads = array.data();
    payloadCount = detail::toInt32("the number of payloads", array.size());
    payloadExtent_ = detail::Extent(array);
  }

  void setOutTopkIdx(Span<std::int32_t> array) { setTopkIdx(array, moeIndexInt32); }
  void setOutTopkIdx(Span<std::int64_t> array) { setTopkIdx(array, moeIndexInt64); }
  void setOutTopkWeights(Span<float> array) { set(describe.outTopkWeights, weightsExtent_, array); }
  void setOutSourceIndex(Span<std::int32_t> array) { set(describe.outSourceIndex, sourceIndexExtent_, array); }
  void setOutExpertOffsets(Span<std::int32_t> array) { set(describe.outExpertOffsets, offsetsExtent_, array); }
  void setOutBlockOffsets(Span<std::int32_t> array) { set(describe.outBlockOffsets, blocksExtent_, array); }
  void setOutLayoutRange(Span<std::int64_t> array) { set(describe.outLayoutRange, rangeExtent_, array); }
  void setOutRowExperts(Span<std::int32_t> array) { set(describe.outRowExperts, expertsExtent_, array); }
  void setOutRowsPerExpert(Span<std::int32_t> array) { set(describe.outRowsPerExpert, countsExtent_, array); }
  void setCumulativeRows(Span<std::int32_t> array) { set(describe.cumulativeRows, cumulativeExtent_, array); }
  void setCumulativeWaitNs(Span<std::int64_t> array) { set(describe.cumulativeWaitNs, waitExtent_, array); }

 private:
  friend class Handle;
  friend class Pending;

  template <class T>
  static void set(T*& field, detail::Extent& extent, Span<T> array) {
    field = array.data();
    extent = detail::Extent(array);
  }
  template <class T>
  void setTopkIdx(Span<T> array, std::int32_t type) {
    describe.outTopkIdx = array.data();
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
    // Only the rows that outRowsMax admits are filled. If more arrive, the library reports it to all ranks.
    const bool all = (padding & moePadRows) != 0 || outRows == nullptr;
    const detail::Axis filled{"outRows", all ? row.size : std::max<std::int64_t>(outRowsMax, 0)};
    const detail::Axis token{"tokens", shape.tokens};
    rowsExtent_.require("args.rows", rows, {token, {"hidden", hidden}});
    if (payloads == nullptr) {
      payloadIn_.require("args.payloads[0].in", payload_.in, {token, {"bytes", payload_.bytes}});
      payloadOut_.require("args.payloads[0].out", payload_.out, {filled, {"bytes", payload_.bytes}});
    }
    payloadExtent_.require("args.payloads", payloads, {{"payloadCount", payloadCount}});
    outRowsExtent_.require("args.outRows", outRows, {filled, rowAxis()});
    requireCast(shape, filled);
    requireDescribed(shape, row);
  }
  void requireCast(const detail::Shape& shape, const detail::Axis& filled) const {
    if (cast.scaleLayout == moeScales128x4) {
      scalesExtent_.require("args.cast.outScales", cast.outScales,
                            {{"blocks", scaleBlocks(shape)}, {"words", scaleWords()}, {"128", 128}});
    } else {
      scalesExtent_.require("args.cast.outScales", cast.outScales, {filled, {"words", scaleWords()}});
    }
    inputScaleExtent_.require("args.cast.inputScale", cast.inputScale, {{"1", 1}});
    globalScaleExtent_.require("args.cast.globalScale", cast.globalScale, {{"1", 1}});
  }
  void requireDescribed(const detail::Shape& shape, const detail::Axis& row) const {
    const moeDescribe_t& d = describe;
    const detail::Axis topk{"topk", shape.topk}, expert{"localExperts", shape.localExperts};
    const detail::Axis ends{"localExperts + 1", shape.localExperts + 1};
    if (topkIdxExtent_.data != nullptr && topkIdxExtent_.data == d.outTopkIdx)
      detail::requireIndexType("args.describe.outTopkIdx", indexType_, shape.indexType);
    topkIdxExtent_.require("args.describe.outTopkIdx", d.outTopkIdx, {row, topk});
    if (shape.hasRowPerExpert()) {
      weightsExtent_.require("args.describe.outTopkWeights", d.outTopkWeights, {row});
    } else {
      weightsExtent_.require("args.describe.outTopkWeights", d.outTopkWeights, {row, topk});
    }
    sourceIndexExtent_.require("args.describe.outSourceIndex", d.outSourceIndex, {row});
    offsetsExtent_.require("args.describe.outExpertOffsets", d.outExpertOffsets, {ends});
    blocksExtent_.require("args.describe.outBlockOffsets", d.outBlockOffsets, {ends});
    rangeExtent_.require("args.describe.outLayoutRange", d.outLayoutRange, {expert, {"nranks", shape.nranks}});
    expertsExtent_.require("args.describe.outRowExperts", d.outRowExperts, {row});
    countsExtent_.require("args.describe.outRowsPerExpert", d.outRowsPerExpert, {expert});
    cumulativeExtent_.require("args.describe.cumulativeRows", d.cumulativeRows, {expert});
    waitExtent_.require("args.describe.cumulativeWaitNs", d.cumulativeWaitNs, {{"nranks", shape.nranks}});
  }
  bool packsTwo() const noexcept { return cast.type == moeCastMxfp4 || cast.type == moeCastNvfp4; }
  std::int64_t codeBytes() const noexcept { return packsTwo() ? hidden / 2 : hidden; }
  detail::Axis rowAxis() const {
    return packsTwo() ? detail::Axis{"hidden / 2", codeBytes()} : detail::Axis{"hidden", hidden};
  }
  // 32-bit words of a row's scales. A word has one fp32 for 128 elements, or four bytes, each for a block.
  std::int64_t scaleWords() const noexcept {
    if (cast.type == moeCastNvfp4) return hidden / 64;
    const std::int32_t blocks = hidden / 128;
    return cast.type == moeCastFp8Ue8m0 ? (blocks + 3) / 4 : blocks;
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

  Payload payload_;  // of setPayload
  detail::Extent rowsExtent_, outRowsExtent_, payloadIn_, payloadOut_, payloadExtent_, scalesExtent_;
  detail::Extent inputScaleExtent_, globalScaleExtent_, topkIdxExtent_, weightsExtent_, sourceIndexExtent_;
  detail::Extent offsetsExtent_, blocksExtent_, rangeExtent_, expertsExtent_, countsExtent_, cumulativeExtent_,
      waitExtent_;
  std::int32_t indexType_ = moeIndexInt32;
};

// ---- Combine --------------------------------------------------------------------------------------------------------

// moeCombineArgs_t with its defaults, in the same way. What `rows` must have is known with the host backend, in the
// layouts RANK_MAJOR and EXPERT_MAJOR_PADDED, and once counts() has been asked for this route. Otherwise the size of
// rows and weightGrads is not checked.
class CombineArgs : private moeCombineArgs_t {
 public:
  using moeCombineArgs_t::bias0;
  using moeCombineArgs_t::bias1;
  using moeCombineArgs_t::cumulativeWaitNs;
  using moeCombineArgs_t::flags;
  using moeCombineArgs_t::hidden;
  using moeCombineArgs_t::out;
  using moeCombineArgs_t::rows;
  using moeCombineArgs_t::rowType;
  using moeCombineArgs_t::sms;
  using moeCombineArgs_t::topkWeights;
  using moeCombineArgs_t::weights;
  using moeCombineArgs_t::wire;
  std::optional<moeGrads_t> grads;  // without a value: no gradients travel
  moeReady_t ready = MOE_READY_INITIALIZER;

  CombineArgs() noexcept : moeCombineArgs_t MOE_COMBINE_ARGS_INITIALIZER {}
  // With setRows.
  template <class Rows, class Out>
  CombineArgs(const Rows& in, Out&& sums, std::int32_t elements) : CombineArgs() {
    setRows(in, sums, elements);
  }

  // The struct for the C functions, valid as long as this object lives and does not change.
  moeCombineArgs_t native() const noexcept {
    moeCombineArgs_t args = *this;
    args.grads = grads.has_value() ? &*grads : nullptr;
    args.ready = &ready;
    return args;
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
  void setWeightGrads(Span<const float> weightGrads, Span<float> outWeightGrads) {
    grads = moeGrads_t{sizeof(moeGrads_t), weightGrads.data(), outWeightGrads.data()};
    gradsExtent_ = detail::Extent(weightGrads);
    outGradsExtent_ = detail::Extent(outWeightGrads);
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
    ready.words = words.data();
    ready.blockRows = blockRows;
    ready.value = value;
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
      gradsExtent_.require("args.grads.weightGrads", grads.has_value() ? grads->weightGrads : nullptr,
                           {row, shape.hasRowPerExpert() ? detail::Axis{"1", 1} : topk});
    }
    outExtent_.require("args.out", out, {token, width});
    bias0Extent_.require("args.bias0", bias0, {token, width});
    bias1Extent_.require("args.bias1", bias1, {token, width});
    outGradsExtent_.require("args.grads.outWeightGrads", grads.has_value() ? grads->outWeightGrads : nullptr,
                            {token, topk});
    topkWeightsExtent_.require("args.topkWeights", topkWeights, {token, topk});
    waitExtent_.require("args.cumulativeWaitNs", cumulativeWaitNs, {{"nranks", shape.nranks}});
    requireReady(shape);
  }
  void requireReady(const detail::Shape& shape) const {
    const detail::Axis experts{"localExperts", shape.localExperts};
    if (ready.blockRows <= 0) return readyExtent_.require("args.ready.words", ready.words, {experts});
    if (shape.layout != moeLayoutExpertMajorPadded) return;
    const std::int64_t places = std::int64_t{shape.nranks} * shape.bound;
    readyExtent_.require("args.ready.words", ready.words,
                         {experts, {"blocks", (places + ready.blockRows - 1) / ready.blockRows}});
  }

  detail::Extent rowsExtent_, outExtent_, bias0Extent_, bias1Extent_, gradsExtent_, outGradsExtent_;
  detail::Extent topkWeightsExtent_, waitExtent_, readyExtent_;
};

}  // namespace moecomm
#endif  // MOECOMM_ARGUMENTS_HPP_
