// The checks of moe_perf must find every kind of wrong result. The test makes a perfect exchange from the plans of all
// ranks, then spoils one thing. A checker that cannot fail would hide defects of the library.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstring>
#include <utility>
#include <vector>

#include "moecomm.h"
#include "perf/moe_perf/plan.h"
#include "perf/moe_perf/report.h"
#include "support/reference/wire_reference.h"

namespace moe::test {
namespace {

using namespace moe::perf;

constexpr int kRanks = 3;
constexpr int kTokens = 12;
constexpr std::uint64_t kSeed = 7;

template <class Job>
void run(const Job& job) {
  for (std::int64_t row = 0; row < job.rowCount(); ++row) job(row, 0, 1);
}

// A step of all ranks, exchanged by plain copies.
struct World {
  explicit World(Options given) : options(std::move(given)) {
    const Load load = evenLoad(kRanks, kTokens);
    for (int rank = 0; rank < kRanks; ++rank) {
      plans.push_back(makePlan(options, kSeed, load, 0, rank));
      sources.emplace_back(static_cast<std::size_t>(kTokens * options.rowBytes()));
      sides.emplace_back(static_cast<std::size_t>(kTokens * shape().sideFloats));
      run(FillRows{payloadOf(), shape(), rank, kTokens, sources.back().data()});
      run(FillSide{payloadOf(), shape(), rank, kTokens, {sides.back().data(), shape().sideFloats, 1}});
    }
    for (int rank = 0; rank < kRanks; ++rank) dispatch(rank);
  }

  RowShape shape() const { return options.rowShape(); }
  PayloadOf payloadOf() const { return {kSeed, &iteration}; }
  const Plan& plan(int rank) const { return plans[static_cast<std::size_t>(rank)]; }

  void dispatch(int rank) {
    const auto rows = static_cast<std::size_t>(plan(rank).layoutRows);
    const auto rowBytes = static_cast<std::size_t>(options.rowBytes());
    const auto sideFloats = static_cast<std::size_t>(shape().sideFloats);
    std::vector<std::byte> out(rows * rowBytes);
    std::vector<float> side(rows * sideFloats);
    for (const RowSpec& spec : plan(rank).specs) {
      const auto source = static_cast<std::size_t>(spec.source);
      const auto token = static_cast<std::size_t>(spec.token);
      const auto row = static_cast<std::size_t>(spec.row);
      std::memcpy(&out[row * rowBytes], &sources[source][token * rowBytes], rowBytes);
      if (sideFloats > 0) std::memcpy(&side[row * sideFloats], &sides[source][token * sideFloats], 4 * sideFloats);
    }
    arrived.push_back(std::move(out));
    arrivedSides.push_back(std::move(side));
  }

  // Counts the wrong values that `rank` has received.
  unsigned long long wrongPayloads(int rank, int stride = 1) const {
    Findings findings{};
    const auto i = static_cast<std::size_t>(rank);
    const auto specs = static_cast<std::int64_t>(plan(rank).specs.size());
    run(VerifyRows{payloadOf(), shape(), plan(rank).specs.data(), specs, stride, arrived[i].data(), &findings});
    run(VerifySide{payloadOf(),
                   shape(),
                   plan(rank).specs.data(),
                   specs,
                   {arrivedSides[i].data(), shape().sideFloats, 1},
                   &findings});
    return findings.wrongPayloads;
  }

  // The experts and the combine of all ranks for the tokens of rank 0, summed in the order that moecomm.h gives.
  std::vector<std::byte> combine() {
    const Format format = combineFormat(options.format);
    std::vector<float> sums(static_cast<std::size_t>(kTokens * options.hidden));
    for (int rank = 0; rank < kRanks; ++rank) addRank(rank, format, sums);
    std::vector<std::byte> out(sums.size() * static_cast<std::size_t>(elementBytes(format)));
    for (int group = 0; group < kTokens * options.hidden / kGroup; ++group) {
      GroupValues values;
      std::memcpy(values.value, &sums[static_cast<std::size_t>(group * kGroup)], sizeof(values));
      storeGroup(format, out.data(), group, values);
    }
    return out;
  }

  void addRank(int rank, Format format, std::vector<float>& sums) {
    const auto i = static_cast<std::size_t>(rank);
    const std::int64_t rowBytes = options.hidden * elementBytes(format);
    std::vector<std::byte> outputs(static_cast<std::size_t>(plan(rank).layoutRows * rowBytes));
    run(RunExperts{payloadOf(),
                   shape(),
                   options.style(),
                   plan(rank).specs.data(),
                   static_cast<std::int64_t>(plan(rank).specs.size()),
                   plan(rank).specEntries.data(),
                   arrived[i].data(),
                   {shape().sideFloats > 0 ? arrivedSides[i].data() : nullptr, shape().sideFloats, 1},
                   outputs.data()});
    std::vector<float> partial(sums.size());
    for (int token = 0; token < kTokens; ++token) {
      for (const Entry& entry : entriesOn(token, rank)) addRow(rank, token, entry, format, outputs, partial);
    }
    if (options.wire != Wire::row) return addCoded(partial, sums);
    for (std::size_t k = 0; k < sums.size(); ++k) sums[k] += rounded(format, partial[k]);
  }
  void addCoded(const std::vector<float>& partial, std::vector<float>& sums) const {
    for (auto at = partial.begin(); at != partial.end(); at += options.hidden) {
      const std::vector<float> row(at, at + options.hidden);
      const std::vector<float> values = referenceWire(static_cast<int>(options.wire), row).values;
      float* to = &sums[static_cast<std::size_t>(at - partial.begin())];
      for (const float value : values) *to++ += value;
    }
  }

  // The entries of one of rank 0's tokens on a rank. Layouts with one row per token count them once.
  std::vector<Entry> entriesOn(int token, int rank) const {
    std::vector<Entry> found;
    const auto at = static_cast<std::size_t>(token);
    for (auto i = static_cast<std::size_t>(plan(0).entryOffsets[at]);
         i < static_cast<std::size_t>(plan(0).entryOffsets[at + 1]); ++i) {
      if (plan(0).entries[i].rank == rank) found.push_back(plan(0).entries[i]);
    }
    if (!options.expertMajor() && found.size() > 1) found.resize(1);
    return found;
  }

  void addRow(int rank, int token, const Entry& entry, Format format, const std::vector<std::byte>& outputs,
              std::vector<float>& partial) const {
    for (const RowSpec& spec : plan(rank).specs) {
      const bool same = spec.source == 0 && spec.token == token;
      const auto first = static_cast<std::size_t>(spec.entryBegin);
      if (!same || (options.expertMajor() && plan(rank).specEntries[first].expert != entry.expert)) continue;
      const float weight = options.style() == ExpertStyle::apply ? entry.weight : 1.0F;
      for (int group = 0; group < options.hidden / kGroup; ++group) {
        const std::byte* row = &outputs[static_cast<std::size_t>(spec.row * options.hidden * elementBytes(format))];
        const GroupValues values = loadGroup(format, row, group);
        for (int i = 0; i < kGroup; ++i) {
          partial[static_cast<std::size_t>(token * options.hidden + group * kGroup + i)] += weight * values.value[i];
        }
      }
    }
  }

  Findings judgeCombine(const std::vector<std::byte>& out) const {
    Findings findings{};
    const VerifyCombine check{
        payloadOf(), shape(),    options.style(), 0, kTokens, plan(0).entries.data(), plan(0).entryOffsets.data(),
        1,           out.data(), &findings};
    options.wire == Wire::row ? run(check) : run(VerifyWire{check, options.wire});
    return findings;
  }

  Options options;
  std::uint32_t iteration = 3;
  std::vector<Plan> plans;
  std::vector<std::vector<std::byte>> sources, arrived;
  std::vector<std::vector<float>> sides, arrivedSides;
};

Options makeOptions(std::int32_t layout, Format format, const char* weights = "auto") {
  Options options;
  options.layout = layout;
  options.format = format;
  options.weights = weights;
  options.hidden = 512;
  options.topk = 4;
  options.experts = 10;
  return options;
}

std::vector<Options> allOptions() {
  std::vector<Options> all;
  for (const std::int32_t layout :
       {moeLayoutFlat, moeLayoutExpertMajor, moeLayoutExpertMajorPadded, moeLayoutRankMajor}) {
    for (const Format format : {Format::bf16, Format::fp16, Format::fp32, Format::fp8}) {
      all.push_back(makeOptions(layout, format));
      if (all.back().expertMajor()) all.push_back(makeOptions(layout, format, "applied"));
    }
  }
  return all;
}

// The errors of a format are no fault. A row at a wrong place is one, and so is one element that is too far off.
TEST(PerfChecks, FindSumsThatAWireFormatDoesNotExplain) {
  for (const Wire wire : {Wire::fp8, Wire::fp8Block, Wire::nvfp4, Wire::logfmt10}) {
    for (Options options : allOptions()) {
      options.wire = wire;
      World world(options);
      std::vector<std::byte> out = world.combine();
      const auto wrong = [&] { return world.judgeCombine(out).wrongCombines; };
      EXPECT_EQ(wrong(), 0U) << options.layoutName() << " " << options.formatName() << " " << options.wireName();
      GroupValues values = loadGroup(combineFormat(options.format), out.data(), 0);
      values.value[0] = 1.5F * values.value[0] + 40.0F;
      storeGroup(combineFormat(options.format), out.data(), 0, values);
      EXPECT_EQ(wrong(), 1U);
      std::rotate(out.begin(), out.begin() + static_cast<std::ptrdiff_t>(out.size()) / kTokens, out.end());
      EXPECT_GT(wrong(), 100U);
    }
  }
}

TEST(PerfChecks, FindNothingInAPerfectExchange) {
  for (const Options& options : allOptions()) {
    World world(options);
    for (int rank = 0; rank < kRanks; ++rank) EXPECT_EQ(world.wrongPayloads(rank), 0U);
    const Findings findings = world.judgeCombine(world.combine());
    EXPECT_EQ(findings.wrongCombines, 0U) << options.layoutName() << " " << options.formatName();
    EXPECT_LT(std::bit_cast<double>(findings.maxRelErrorBits), 0.02);
  }
}

TEST(PerfChecks, FindTwoSwappedRows) {
  for (const Options& options : allOptions()) {
    World world(options);
    const auto rowBytes = static_cast<std::size_t>(options.rowBytes());
    const auto& specs = world.plan(1).specs;
    const auto a = static_cast<std::size_t>(specs[0].row);
    std::size_t b = a;
    for (const RowSpec& spec : specs) {
      if (spec.token != specs[0].token) b = static_cast<std::size_t>(spec.row);
    }
    ASSERT_NE(a, b);
    std::byte* rows = world.arrived[1].data();
    std::swap_ranges(rows + a * rowBytes, rows + (a + 1) * rowBytes, rows + b * rowBytes);
    EXPECT_GT(world.wrongPayloads(1), static_cast<unsigned long long>(options.hidden)) << options.layoutName();
  }
}

TEST(PerfChecks, FindEverySingleSpoiledByte) {
  World world(makeOptions(moeLayoutFlat, Format::fp8));
  for (std::size_t byte = 0; byte < world.arrived[0].size(); byte += 131) {
    world.arrived[0][byte] ^= std::byte{8};
    EXPECT_EQ(world.wrongPayloads(0), 1U);
    world.arrived[0][byte] ^= std::byte{8};
  }
  world.arrivedSides[0][1] *= 2;
  EXPECT_EQ(world.wrongPayloads(0), 1U);
}

TEST(PerfChecks, FindRowsOfAnEarlierIteration) {
  World world(makeOptions(moeLayoutExpertMajor, Format::bf16));
  world.iteration += 1;
  const auto elements = static_cast<double>(world.plan(2).layoutRows * world.options.hidden);
  // 31 of 32 elements change with the iteration.
  EXPECT_GT(static_cast<double>(world.wrongPayloads(2)), 0.9 * elements);
  EXPECT_GT(world.wrongPayloads(2, 16), 0U);
}

TEST(PerfChecks, FindACombineWithAWrongExpert) {
  for (const Options& options : allOptions()) {
    World world(options);
    for (Plan& plan : world.plans) {
      for (const RowSpec& spec : plan.specs) {
        if (spec.source == 0) plan.specEntries[static_cast<std::size_t>(spec.entryBegin)].expert ^= 1;
      }
    }
    EXPECT_GT(world.judgeCombine(world.combine()).wrongCombines, 0U) << options.layoutName();
  }
}

TEST(PerfChecks, FindOneUnitInTheLastPlace) {
  World world(makeOptions(moeLayoutFlat, Format::bf16));
  std::vector<std::byte> out = world.combine();
  out[100] ^= std::byte{1};
  EXPECT_EQ(world.judgeCombine(out).wrongCombines, 1U);
}

TEST(PerfChecks, GiveEachExpertAFunctionOfItsOwn) {
  std::vector<std::pair<float, float>> functions;
  for (int expert = 0; expert < kExpertsDistinct; ++expert) {
    functions.emplace_back(expertFunction(expert).multiplier, expertFunction(expert).offset);
  }
  std::sort(functions.begin(), functions.end());
  EXPECT_EQ(std::adjacent_find(functions.begin(), functions.end()), functions.end());
}

TEST(PerfPayload, IsExactInEveryFormat) {
  for (const Format format : {Format::bf16, Format::fp16, Format::fp32, Format::fp8}) {
    for (int value = -16; value < 16; ++value) {
      EXPECT_EQ(rounded(format, static_cast<float>(value)), static_cast<float>(value));
    }
  }
}

TEST(PerfPayload, RoundsToNearestEven) {
  EXPECT_EQ(rounded(Format::bf16, 257.0F), 256.0F);
  EXPECT_EQ(rounded(Format::bf16, 259.0F), 260.0F);
  EXPECT_EQ(rounded(Format::fp16, 2049.0F), 2048.0F);
  EXPECT_EQ(rounded(Format::fp16, -2051.0F), -2052.0F);
  EXPECT_EQ(rounded(Format::fp16, 0x1p-5F), 0x1p-5F);
}

TEST(PerfRouting, SpreadsAndLimitsAsAsked) {
  Options options = makeOptions(moeLayoutFlat, Format::bf16);
  options.routing = Routing::oneRank;
  const Load load = evenLoad(kRanks, kTokens);
  Plan plan = makePlan(options, kSeed, load, 0, 1);
  EXPECT_EQ(plan.rows, 0);
  EXPECT_EQ(plan.remoteRowsAll, (kRanks - 1) * kTokens);
  options.routing = Routing::empty;
  plan = makePlan(options, kSeed, load, 0, 0);
  EXPECT_EQ(plan.logicalRowsAll, 0);
  options.routing = Routing::zipf;
  plan = makePlan(options, kSeed, load, 0, 0);
  EXPECT_EQ(plan.entries.size(), static_cast<std::size_t>(kTokens * options.topk));
}

TEST(PerfReport, SummarizesByRank) {
  std::vector<double> samples;
  for (int i = 1; i <= 200; ++i) samples.push_back(201 - i);
  const Summary summary = summarize(samples);
  EXPECT_EQ(summary.min, 1);
  EXPECT_EQ(summary.p10, 20);
  EXPECT_EQ(summary.p90, 180);
  EXPECT_EQ(summary.noisePercent(), 160);
  EXPECT_EQ(summarize({}).noisePercent(), 0);
  EXPECT_EQ(summary.median, 100);
  EXPECT_EQ(summary.p99, 198);
  EXPECT_EQ(summarize({}).median, 0);
}

}  // namespace
}  // namespace moe::test
