#include "support/api/moe_step.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

namespace moe::test {
namespace {

// Small numbers that every row type holds exactly.
float valueOf(std::uint64_t seed, int iteration, int source, int token, std::int64_t column) {
  const std::uint64_t key = mix(mix(seed, static_cast<std::uint64_t>(iteration)),
                                static_cast<std::uint64_t>(source) << 32 | static_cast<std::uint64_t>(token));
  return static_cast<float>(static_cast<int>(mix(key, static_cast<std::uint64_t>(column)) % 33) - 16) / 8.0f;
}

float scaleOf(int expert) {
  return 0.5f + 0.25f * static_cast<float>(expert % 7);
}
float offsetOf(int expert) {
  return static_cast<float>(expert % 13) - 6.0f;
}

}  // namespace

// The name of a case: its shape, and everything in which it differs from a plain one.
std::string StepCase::name() const {
  static constexpr std::pair<int StepCase::*, const char*> kNumbers[] = {
      {&StepCase::rowType, "row type"},        {&StepCase::hidden, "hidden"},
      {&StepCase::experts, "experts"},         {&StepCase::topk, "topk"},
      {&StepCase::groups, "groups"},           {&StepCase::groupsPerToken, "groups per token"},
      {&StepCase::tokensMax, "tokens"},        {&StepCase::rowsBudget, "rows budget"},
      {&StepCase::allExperts, "all experts"},  {&StepCase::firstOwn, "own experts from"},
      {&StepCase::alignment, "alignment"},     {&StepCase::sideBytes, "bytes in an array of rows"},
      {&StepCase::biases, "biases"},           {&StepCase::cast, "cast"},
      {&StepCase::scales, "layout of scales"}, {&StepCase::wire, "wire"},
      {&StepCase::padding, "padding"},         {&StepCase::idKind, "kind of ids"},
      {&StepCase::invalidId, "invalid id"}};
  static constexpr std::pair<bool StepCase::*, const char*> kFeatures[] = {
      {&StepCase::bounded, "bounds"},
      {&StepCase::expertCounts, "counts of all experts"},
      {&StepCase::placed, "placements"},
      {&StepCase::window, "window"},
      {&StepCase::wideIndex, "64-bit ids"},
      {&StepCase::weighted, "weights applied"},
      {&StepCase::lateWeights, "weights at combine"},
      {&StepCase::weightGrads, "gradients of weights"},
      {&StepCase::exact, "exact cast"},
      {&StepCase::scalesInput, "input scale"},
      {&StepCase::scalesAll, "global scale"},
      {&StepCase::weighsInput, "weights on input"},
      {&StepCase::arrivals, "arrival words"},
      {&StepCase::describes, "described rows"}};
  static constexpr const char* kLayouts[] = {"FLAT", "EXPERT_MAJOR", "EXPERT_MAJOR_PADDED", "RANK_MAJOR"};
  const StepCase plain;
  std::string text = fmt::format("{} {}", mode == moeModeLl ? "LL" : "HT", kLayouts[layout]);
  for (const auto& [field, what] : kNumbers) {
    if (this->*field != plain.*field) text += fmt::format(", {} {}", what, this->*field);
  }
  for (const auto& [field, what] : kFeatures) {
    if (this->*field != plain.*field) text += fmt::format(", {}{}", this->*field ? "" : "no ", what);
  }
  if (!payloads.forms.empty()) text += fmt::format(", {} payloads", payloads.forms.size());
  return text + fmt::format(", seed {}", seed);
}

int MoeStep::rowBytes() const {
  return case_.hidden * elementBytes(case_.rowType);
}
std::int64_t MoeStep::layoutRows() const {
  return arrivals().layoutRows;
}

MoeStep::MoeStep(RankContext& context, const StepCase& c) : context_(context), case_(c) {
  moeHandleConfig_t config = MOE_HANDLE_CONFIG_INITIALIZER;
  config.experts = c.allExperts != 0 ? c.allExperts : c.experts;
  config.localOnly = c.allExperts != 0 ? 1 : 0;
  config.topk = c.topk;
  config.layout = c.layout;
  config.mode = c.mode;
  config.tokensMax = c.tokensMax;
  config.expertAlignment = c.alignment;
  config.indexType = c.wideIndex ? moeIndexInt64 : moeIndexInt32;
  config.arrivals = c.arrivals ? 1 : 0;
  config.combineWeights = c.lateWeights ? 1 : 0;
  config.rowsBudget = c.rowsBudget;
  config.expertCounts = c.expertCounts ? 1 : 0;
  EXPECT_EQ(moeHandleCreate(&handle_, context.comm, &config), moeSuccess) << context.error();
  const int local = (c.experts + context.nranks - 1) / context.nranks;
  const std::int64_t arriving = std::int64_t{context.nranks} * c.tokensMax;
  rowsMax_ = c.layout == moeLayoutExpertMajorPadded ? arriving * local
             : c.layout == moeLayoutExpertMajor ? arriving * std::min(c.topk, local) + std::int64_t{local} * c.alignment
                                                : arriving;
  Arena& arena = context.arena;
  const auto take = [&](std::int64_t bytes) {
    return static_cast<std::uint8_t*>(arena.take(static_cast<std::size_t>(bytes)));
  };
  const auto takeOutput = [&](std::int64_t bytes) {
    if (!c.window || bytes == 0) return take(bytes);
    void* memory = nullptr;
    EXPECT_EQ(moeMemAlloc(context.comm, static_cast<std::size_t>(bytes), &memory), moeSuccess) << context.error();
    return static_cast<std::uint8_t*>(memory);
  };
  const std::int64_t entries = std::int64_t{c.tokensMax} * c.topk;
  rows_ = take(std::int64_t{c.tokensMax} * rowBytes());
  side_ = take(std::int64_t{c.tokensMax} * c.sideBytes);
  combined_ = take(std::int64_t{c.tokensMax} * rowBytes());
  bias0_ = take(std::int64_t{c.tokensMax} * rowBytes());
  bias1_ = take(std::int64_t{c.tokensMax} * rowBytes());
  out_ = takeOutput(rowsMax_ * rowBytes());
  outSide_ = takeOutput(rowsMax_ * c.sideBytes);
  outScales_ = takeOutput(scaleBytesMax());
  factors_ = reinterpret_cast<float*>(take(8));  // input scale, global scale
  ids_ = take(entries * 8);
  weights_ = reinterpret_cast<float*>(take(entries * 4));
  lateWeights_ = reinterpret_cast<float*>(take(entries * 4));
  outIds_ = take(rowsMax_ * c.topk * 8);
  outWeights_ = reinterpret_cast<float*>(take(rowsMax_ * c.topk * 4));
  grads_ = reinterpret_cast<float*>(take(rowsMax_ * c.topk * 4));
  outGrads_ = reinterpret_cast<float*>(take(entries * 4));
  outSource_ = reinterpret_cast<std::int32_t*>(take(rowsMax_ * 4));
  outOffsets_ = reinterpret_cast<std::int32_t*>(take((local + 1) * 4));
  outBlocks_ = reinterpret_cast<std::int32_t*>(take((local + 1) * 4));
  if (c.describes) takeDescribed();
  takePayloads();
  context.meet();
}

MoeStep::~MoeStep() {
  context_.arena.synchronize();
  context_.meet();
  freePayloads();
  if (case_.window) {
    EXPECT_EQ(moeMemFree(context_.comm, out_), moeSuccess) << context_.error();
    EXPECT_EQ(moeMemFree(context_.comm, case_.sideBytes > 0 ? outSide_ : nullptr), moeSuccess) << context_.error();
    EXPECT_EQ(moeMemFree(context_.comm, case_.cast != moeCastNone ? outScales_ : nullptr), moeSuccess);
  }
  EXPECT_EQ(moeHandleDestroy(handle_), moeSuccess);
}

std::vector<std::uint8_t> MoeStep::inputRow(int source, int token) const {
  std::vector<std::uint8_t> row(static_cast<std::size_t>(rowBytes()));
  if (case_.rowType == moeRowBytes) {
    for (std::size_t i = 0; i < row.size(); ++i) {
      row[i] = static_cast<std::uint8_t>(
          mix(case_.seed + i, static_cast<std::uint64_t>(iteration_ * 7919 + source * 977 + token)));
    }
    return row;
  }
  for (int i = 0; i < case_.hidden; ++i) {
    const float scale = case_.exact ? 0x1p-18f : 1.0f;  // below 1e-4, where casts without exact lose digits
    encodeElement(case_.rowType, scale * valueOf(case_.seed, iteration_, source, token, i), row.data(), i);
  }
  return row;
}

std::vector<float> MoeStep::lateWeights() const {
  std::vector<float> weights;
  for (const float given : input().weights) weights.push_back(1.25f - given);
  return weights;
}

void MoeStep::prepare(int iteration) {
  iteration_ = iteration;
  makeRouting();
  if (case_.bounded) {
    MOE_EXPECT_OK(moeHandleSetTokensBound(handle_, bound()), context_);
  }
  Arena& arena = context_.arena;
  arena.synchronize();
  const RouteInput& in = input();
  std::vector<std::uint8_t> rows, side;
  for (int t = 0; t < in.tokens; ++t) {
    const auto row = inputRow(context_.rank, t);
    rows.insert(rows.end(), row.begin(), row.end());
    for (int i = 0; i < case_.sideBytes; ++i)
      side.push_back(static_cast<std::uint8_t>(context_.rank * 31 + t * 7 + i + iteration));
  }
  arena.upload(rows_, rows.data(), rows.size());
  arena.upload(side_, side.data(), side.size());
  if (case_.wideIndex) {
    const std::vector<std::int64_t> wide(givenExperts_.begin(), givenExperts_.end());
    arena.upload(ids_, wide.data(), wide.size() * 8);
  } else {
    arena.upload(ids_, givenExperts_.data(), givenExperts_.size() * 4);
  }
  arena.upload(weights_, in.weights.data(), in.weights.size() * 4);
  arena.upload(lateWeights_, lateWeights().data(), in.weights.size() * 4);
  const std::vector<std::uint8_t> poison(static_cast<std::size_t>(rowsMax_ * rowBytes()), 0xA5);
  arena.upload(out_, poison.data(), poison.size());
  preparePayloads();
  if (case_.cast == moeCastNone) return;
  const std::vector<std::uint8_t> scalePoison(static_cast<std::size_t>(scaleBytesMax()), 0xA5);
  arena.upload(outScales_, scalePoison.data(), scalePoison.size());
  const ReferenceRule rule = castCase().ruleOf(context_.rank);
  const std::array<float, 2> factors = {rule.inputScale, rule.globalScale};
  arena.upload(factors_, factors.data(), sizeof factors);
}

void MoeStep::route() {
  const int tokens = input().tokens;
  MOE_EXPECT_OK(
      moeRoute(handle_, tokens > 0 ? ids_ : nullptr, tokens > 0 ? weights_ : nullptr, tokens, context_.stream()),
      context_);
}

void MoeStep::askToCast(moeCast_t& cast) const {
  cast.type = case_.cast;
  cast.flags = (case_.exact ? moeCastExact : 0) | (case_.weighsInput ? moeWeightsOnInput : 0);
  cast.outScales = case_.cast != moeCastNone ? outScales_ : nullptr;
  cast.scaleLayout = case_.scales;
  cast.inputScale = case_.scalesInput ? factors_ : nullptr;
  cast.globalScale = case_.scalesAll ? factors_ + 1 : nullptr;
}

// Fills the arguments of a dispatch for `call`.
template <class Call>
void MoeStep::callDispatch(int flags, Call call) {
  DispatchFields args;
  args.rows = input().tokens > 0 ? rows_ : nullptr;
  args.rowType = case_.rowType;
  args.hidden = case_.hidden;
  args.flags = flags;
  args.outRows = out_;
  args.outRowsMax = rowsMax_;
  args.padding = case_.padding;
  const std::vector<moePayload_t> payloads = payloadArgs();
  args.payloads = payloads.empty() ? nullptr : payloads.data();
  args.payloadCount = static_cast<std::int32_t>(payloads.size());
  askToCast(args.cast);
  askToDescribe(args.describe);
  const Watcher watcher((flags & moeSendOnly) != 0 ? Watch{} : watchArrivals());
  MOE_EXPECT_OK(call(args.linked()), context_);
}

void MoeStep::dispatch(int flags) {
  ++dispatches_;
  outputsLater_ = (flags & moeOutputsLater) != 0;
  callDispatch(flags, [&](const auto* args) { return moeDispatch(handle_, args, context_.stream()); });
}

void MoeStep::routeDispatch(int flags) {
  ++dispatches_;
  outputsLater_ = (flags & moeOutputsLater) != 0;
  const int tokens = input().tokens;
  callDispatch(flags, [&](const auto* args) {
    return moeRouteDispatch(handle_, tokens > 0 ? ids_ : nullptr, tokens > 0 ? weights_ : nullptr, tokens, args,
                            context_.stream());
  });
}

void MoeStep::complete() {
  if (std::exchange(outputsLater_, false)) {
    callDispatch(0, [&](const auto* args) { return moeCompleteDispatch(handle_, args, context_.stream()); });
    return;
  }
  const Watcher watcher(watchArrivals());
  MOE_EXPECT_OK(moeComplete(handle_, context_.stream()), context_);
}

std::vector<std::uint8_t> MoeStep::expertRow(int rank, const ArrivedToken& arrived, const ArrivedEntry* entry) const {
  std::vector<std::uint8_t> row = inputRow(arrived.source, arrived.token);
  if (case_.rowType == moeRowBytes) return row;
  const int first = firstExpert(reference_->config, rank);
  const auto apply = [&](int expert, float x) { return scaleOf(expert) * x + offsetOf(expert); };
  for (int i = 0; i < case_.hidden; ++i) {
    const float x = decodeElement(case_.rowType, row.data(), i);
    float y = 0;
    if (entry != nullptr) y = apply(first + entry->localExpert, x);
    for (std::size_t e = 0; entry == nullptr && e < arrived.entries.size(); ++e)
      y += apply(first + arrived.entries[e].localExpert, x);
    encodeElement(case_.rowType, y, row.data(), i);
  }
  return row;
}

float MoeStep::gradOf(int rank, std::int64_t row, int k) const {
  return static_cast<float>(rank * 1000 + row) + static_cast<float>(k) / 64.0f + static_cast<float>(iteration_);
}

void MoeStep::runExperts() {
  Arena& arena = context_.arena;
  const bool perExpert = hasRowPerExpert(static_cast<Layout>(case_.layout));
  auto rows = arena.get(out_, static_cast<std::size_t>(layoutRows() * rowBytes()));
  std::vector<float> grads(static_cast<std::size_t>(layoutRows() * (perExpert ? 1 : case_.topk)), -1.0f);
  const auto place = [&](const std::vector<std::uint8_t>& row, std::int64_t at) {
    std::memcpy(rows.data() + at * rowBytes(), row.data(), row.size());
  };
  for (const ArrivedToken& arrived : arrivals().tokens) {
    if (!perExpert) place(expertRow(context_.rank, arrived, nullptr), arrived.row);
    for (const ArrivedEntry& entry : arrived.entries) {
      if (perExpert) place(expertRow(context_.rank, arrived, &entry), entry.row);
      const std::int64_t row = perExpert ? entry.row : arrived.row;
      grads[static_cast<std::size_t>(perExpert ? row : row * case_.topk + entry.topk)] =
          gradOf(context_.rank, row, entry.topk);
    }
  }
  arena.upload(out_, rows.data(), rows.size());
  arena.upload(grads_, grads.data(), grads.size() * sizeof(float));
  std::vector<std::uint8_t> bias;
  for (int b = 0; b < 2; ++b) {
    bias.clear();
    for (int t = 0; t < input().tokens; ++t) {
      std::vector<std::uint8_t> row(static_cast<std::size_t>(rowBytes()));
      for (int i = 0; i < case_.hidden && case_.rowType != moeRowBytes; ++i) {
        encodeElement(case_.rowType,
                      valueOf(case_.seed + 77 + static_cast<std::uint64_t>(b), iteration_, context_.rank, t, i),
                      row.data(), i);
      }
      bias.insert(bias.end(), row.begin(), row.end());
    }
    arena.upload(b == 0 ? bias0_ : bias1_, bias.data(), bias.size());
  }
}

void MoeStep::combine(int flags) {
  CombineFields args;
  args.rows = out_;
  args.rowType = case_.rowType;
  args.hidden = case_.hidden;
  args.weights = case_.weighted ? moeWeightsApply : moeWeightsApplied;
  args.topkWeights = case_.lateWeights && input().tokens > 0 ? lateWeights_ : nullptr;
  args.flags = flags;
  args.ready.completeSms = (flags & moeSendOnly) != 0 ? iteration_ % 3 * 5 : 0;
  args.wire = case_.wire;
  args.out = combined_;
  args.bias0 = case_.biases > 0 ? bias0_ : nullptr;
  args.bias1 = case_.biases > 1 ? bias1_ : nullptr;
  if (case_.weightGrads) args.carry(grads_, outGrads_);
  MOE_EXPECT_OK(moeCombine(handle_, args.linked(), context_.stream()), context_);
}

void MoeStep::checkCombine() {
  Arena& arena = context_.arena;
  const int tokens = input().tokens;
  const auto sums = arena.get(combined_, static_cast<std::size_t>(std::int64_t{tokens} * rowBytes()));
  const auto bias0 = arena.get(bias0_, static_cast<std::size_t>(std::int64_t{tokens} * rowBytes()));
  const auto bias1 = arena.get(bias1_, static_cast<std::size_t>(std::int64_t{tokens} * rowBytes()));
  const auto grads = arena.get(outGrads_, input().experts.size());
  const std::vector<float> late = lateWeights();
  const CombineCase combine{case_.rowType, rowBytes(), case_.weighted, case_.lateWeights ? &late : nullptr, case_.wire};
  std::vector<std::uint8_t> row;
  for (int t = 0; t < tokens; ++t) {
    const std::int64_t at = std::int64_t{t} * rowBytes();
    const auto expected = referenceSum(
        *reference_, combine, context_.rank, t,
        [&](int rank, const ArrivedToken& arrived, const ArrivedEntry* entry) {
          row = expertRow(rank, arrived, entry);
          return row.data();
        },
        case_.biases > 0 ? bias0.data() + at : nullptr, case_.biases > 1 ? bias1.data() + at : nullptr);
    EXPECT_EQ(std::memcmp(sums.data() + at, expected.data(), expected.size()), 0)
        << "rank " << context_.rank << " token " << t << "; " << case_.name() << " iteration " << iteration_;
  }
  if (!case_.weightGrads) return;
  std::vector<float> expected(input().experts.size(), 0.0f);
  const bool perExpert = hasRowPerExpert(static_cast<Layout>(case_.layout));
  for (int rank = 0; rank < context_.nranks; ++rank) {
    for (const ArrivedToken& arrived : reference_->arrivals[static_cast<std::size_t>(rank)].tokens) {
      if (arrived.source != context_.rank) continue;
      for (const ArrivedEntry& entry : arrived.entries) {
        expected[static_cast<std::size_t>(arrived.token * case_.topk + entry.topk)] =
            gradOf(rank, perExpert ? entry.row : arrived.row, entry.topk);
      }
    }
  }
  EXPECT_EQ(grads, expected) << case_.name();
}

}  // namespace moe::test
