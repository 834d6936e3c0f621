#include "perf/moe_perf/soak_plan.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>

#include "perf/moe_perf/session.h"
#include "perf/payload/draw.h"

namespace moe::perf {
namespace {

constexpr int kLlTokens = 512;  // most tokens of a rank
constexpr int kGroups = 16;     // most groups of experts

// Bounds the rows that one rank may hold. An iteration with more would take the time of many others.
constexpr std::int64_t kLayoutBytes = std::int64_t{256} << 20;

// Draws a number up to `most`. Each halving of the range is equally likely. `most` itself comes often.
int drawMostlySmall(Draw& draw, int most) {
  const int halvings = draw.below(static_cast<int>(std::bit_width(static_cast<unsigned>(most))) + 1);
  return halvings == 0 ? most : draw.below((most >> (halvings - 1)) + 1);
}

bool drawOneOf(Draw& draw, int many) {
  return draw.below(many) == 0;
}

template <class Value, std::size_t count>
Value drawAny(Draw& draw, const std::array<Value, count>& values) {
  return values[static_cast<std::size_t>(draw.below(static_cast<int>(count)))];
}

// The most rows that the layout has at one rank.
std::int64_t layoutRows(const Options& options, int nranks, int tokensMax) {
  const int localExperts = Experts{options.experts, nranks}.onRank(0);
  std::int64_t perToken = 1;
  if (options.layout == moeLayoutExpertMajor) perToken = std::min(options.topk, localExperts);
  if (options.layout == moeLayoutExpertMajorPadded) perToken = localExperts;
  return perToken * nranks * tokensMax;
}

// Casts every other of the shapes that allow a cast.
Cast drawCast(Draw& draw, const Options& options) {
  const bool may = options.format != Format::fp8 && options.hidden % kScaleColumns == 0;
  return may && drawOneOf(draw, 2) ? drawAny(draw, kCasts).cast : Cast::none;
}

// Draws a layout of scales that the options' cast allows.
std::int32_t drawScales(Draw& draw, const Options& options) {
  std::int32_t scales = moeScalesRowMajor;
  if (options.cast != Cast::none && drawOneOf(draw, 2)) scales = moeScalesTokenContiguous;
  if (options.cast != Cast::none && !castScalesAreFloats(options.cast) && drawOneOf(draw, 2)) scales = moeScales128x4;
  return scales;
}

constexpr std::array kWires = {Wire::row, Wire::row, Wire::fp8, Wire::fp8Block, Wire::nvfp4, Wire::logfmt10};

Wire drawWire(Draw& draw, const Options& options) {
  return options.hidden % kScaleColumns == 0 ? drawAny(draw, kWires) : Wire::row;
}

// Draws how rows look and where they go.
Options drawOptions(Draw& draw, const Options& limits, std::int32_t mode) {
  Options options = limits;
  options.mode = mode;
  options.layout = draw.below(moeLayoutRankMajor + 1);
  options.format = drawAny(draw, std::array{Format::bf16, Format::bf16, Format::fp16, Format::fp32, Format::fp8});
  options.routing =
      drawAny(draw, std::array{Routing::uniform, Routing::uniform, Routing::uniform, Routing::zipf, Routing::zipf,
                               Routing::groupLimited, Routing::groupLimited, Routing::oneRank, Routing::empty});
  options.weights = options.expertMajor() && drawOneOf(draw, 2) ? "applied" : "auto";
  const int unit = 16 / elementBytes(options.format);
  options.hidden = unit * (1 + drawMostlySmall(draw, limits.hidden / unit - 1));
  // Half of the shapes can be cast.
  if (drawOneOf(draw, 2) && limits.hidden >= kScaleColumns) {
    options.hidden = (std::max(options.hidden, kScaleColumns)) / kScaleColumns * kScaleColumns;
  }
  options.cast = drawCast(draw, options);
  options.scales = drawScales(draw, options);
  options.wire = drawWire(draw, options);
  options.topk = 1 + draw.below(limits.topk);
  options.experts = options.topk + drawMostlySmall(draw, limits.experts - options.topk);
  options.groups = 1 + draw.below(std::min(options.experts, kGroups));
  options.groupsPerToken = 1 + draw.below(options.groups);
  options.window = drawOneOf(draw, 4) ? 0 : 1;
  if (options.staysInSlots()) options.scales = moeScalesRowMajor;
  options.interleave = drawOneOf(draw, 4);
  options.sendOnly = drawOneOf(draw, 4);
  // The staging area serves one operation at a time.
  const bool stages = options.window == 0 || options.wire != Wire::row;
  if (mode == moeModeHt && stages && options.interleave) options.sendOnly = false;
  options.seed = draw.next();
  return options;
}

// Some ranks send nothing, others as much as the maximum.
Load drawLoad(Draw& draw, const Options& options, int nranks, int tokensMax) {
  const std::int64_t bytesPerToken = layoutRows(options, nranks, 1) * options.combineRowBytes();
  const int fitting = static_cast<int>(std::clamp<std::int64_t>(kLayoutBytes / bytesPerToken, 1, tokensMax));
  Load load;
  load.tokensMax = drawOneOf(draw, 2) ? fitting : std::max(drawMostlySmall(draw, fitting), 1);
  const int most = drawMostlySmall(draw, load.tokensMax);
  for (std::vector<int>& tokens : load.tokens) {
    for (int rank = 0; rank < nranks; ++rank) {
      const int uneven = draw.below(most + 1);
      tokens.push_back(drawAny(draw, std::array{0, most, uneven, uneven}));
    }
  }
  return load;
}

// The most tokens that a rank sends in one call.
int tokensMaxOf(const Options& limits, std::int32_t mode) {
  const int tokens = std::max(limits.tokensMax(), 1);
  return mode == moeModeLl ? std::min(tokens, kLlTokens) : tokens;
}

std::int32_t modeOf(const Options& limits, int shape) {
  if (limits.mode != moeModeAuto) return limits.mode;
  return shape % 2 == 0 ? moeModeLl : moeModeHt;
}

}  // namespace

std::string SoakShape::describe() const {
  return fmt::format(
      "{} {} {} cast {}, wire {}, hidden {}, top-{} of {} experts, routing {}, weights {}, window {}{}{}{}, tokens {} "
      "/ {} of "
      "{}",
      options.modeName(), options.layoutName(), options.formatName(), options.castText(), options.wireName(),
      options.hidden, options.topk, options.experts, options.routingText(), options.weightsName(), options.window,
      options.interleave ? ", interleaved" : "", options.sendOnly ? ", send-only" : "", secondSet ? ", second set" : "",
      fmt::join(load.tokens[0], ","), fmt::join(load.tokens[1], ","), load.tokensMax);
}

// More iterations make the shapes longer rather than more numerous, because a new shape costs milliseconds.
std::vector<SoakShape> drawSoak(const Options& limits, int nranks) {
  Draw draw(mix(limits.seed));
  std::vector<SoakShape> shapes;
  for (int left = limits.soak; left > 0; left -= shapes.back().iterations) {
    const std::int32_t mode = modeOf(limits, static_cast<int>(shapes.size()));
    SoakShape shape;
    shape.options = drawOptions(draw, limits, mode);
    shape.load = drawLoad(draw, shape.options, nranks, tokensMaxOf(limits, mode));
    shape.iterations = std::min(left, 5 + limits.soak / 400 + draw.below(10 + limits.soak / 100));
    shape.secondSet = mode == moeModeLl && drawOneOf(draw, 2);
    shapes.push_back(std::move(shape));
  }
  return shapes;
}

void sizeForSoak(const Options& limits, int nranks, moeConfig_t& config) {
  Options widest = limits;
  widest.format = Format::fp8;
  config.sideBytesMax = widest.sideBytes();
  widest.format = Format::fp32;
  config.rowBytesMax = widest.rowBytes();
  config.tokensMax = tokensMaxOf(limits, moeModeHt);
  config.llTokensMax = tokensMaxOf(limits, moeModeLl);
  for (const SoakShape& shape : drawSoak(limits, nranks)) {
    if (shape.options.window == 0) continue;
    const std::int64_t rows = layoutRows(shape.options, nranks, shape.load.tokensMax);
    const std::int64_t bytes = Session::windowBytes(shape.options, rows, nranks);
    config.heapBytes = std::max(config.heapBytes, shape.options.sessions() * bytes);
  }
}

}  // namespace moe::perf
