// moeGetDispatchLayout: counts beside those of a plain loop, and refusals.
#include <fmt/format.h>

#include "support/api/api_world.h"
#include "support/base/index.h"
#include "support/base/rng.h"

namespace moe::test {
namespace {

struct Shape {
  int tokens, topk, experts, ranks, domainSize;
};

struct Counts {
  std::vector<std::int32_t> perRank, perDomain, perExpert;
  std::vector<std::uint8_t> toRank;

  explicit Counts(const Shape& shape)
      : perRank(at(shape.ranks)),
        perDomain(at(shape.ranks / shape.domainSize)),
        perExpert(at(shape.experts)),
        toRank(at(shape.tokens * shape.ranks)) {}
  bool operator==(const Counts&) const = default;
};

// The first experts % ranks ranks have one expert more.
int rankOf(const Shape& shape, std::int64_t expert) {
  int rank = 0;
  for (std::int64_t end = 0;; ++rank) {
    end += shape.experts / shape.ranks + (rank < shape.experts % shape.ranks ? 1 : 0);
    if (expert < end) return rank;
  }
}

Counts countsOf(const Shape& shape, const std::vector<std::int64_t>& ids) {
  Counts counts(shape);
  for (int token = 0; token < shape.tokens; ++token) {
    std::vector<bool> domains(counts.perDomain.size());
    for (int k = 0; k < shape.topk; ++k) {
      const std::int64_t id = ids[at(token * shape.topk + k)];
      if (id < 0 || id >= shape.experts) continue;
      const int rank = rankOf(shape, id);
      ++counts.perExpert[at(id)];
      counts.toRank[at(token * shape.ranks + rank)] = 1;
      domains[at(rank / shape.domainSize)] = true;
    }
    for (int rank = 0; rank < shape.ranks; ++rank)
      counts.perRank[at(rank)] += counts.toRank[at(token * shape.ranks + rank)];
    for (std::size_t i = 0; i < domains.size(); ++i) counts.perDomain[i] += domains[i] ? 1 : 0;
  }
  return counts;
}

// Mostly experts; some entries are unused, and some name none.
std::vector<std::int64_t> drawIds(const Shape& shape, Rng& rng) {
  std::vector<std::int64_t> ids;
  for (int i = 0; i < shape.tokens * shape.topk; ++i) {
    const int kind = rng.below(16);
    ids.push_back(kind == 0 ? -1 : kind == 1 ? std::int64_t{shape.experts} + rng.below(3) : rng.below(shape.experts));
    if (kind == 2) ids.back() = (std::int64_t{1} << 32) + 1;  // as int32 it would be an expert
  }
  return ids;
}

class LayoutCount : public OnBackend {
 protected:
  void SetUp() override {
    OnBackend::SetUp();
    if (IsSkipped()) return;
    arena_ = GetParam() == moeBackendCuda ? makeCudaArena(0) : makeHostArena();
  }

  template <class Id>
  Counts counted(const Shape& shape, const std::vector<std::int64_t>& ids) {
    const std::vector<Id> narrow(ids.begin(), ids.end());
    Counts counts(shape);
    const auto take = [&](std::size_t items) { return static_cast<std::int32_t*>(arena_->take(items * 4)); };
    moeDispatchLayout_t layout = MOE_DISPATCH_LAYOUT_INITIALIZER;
    layout.backend = GetParam();
    layout.indexType = sizeof(Id) == 8 ? moeIndexInt64 : moeIndexInt32;
    layout.topk = shape.topk;
    layout.experts = shape.experts;
    layout.nranks = shape.ranks;
    layout.domainSize = shape.domainSize;
    layout.tokensPerRank = take(counts.perRank.size());
    layout.tokensPerDomain = take(counts.perDomain.size());
    layout.tokensPerExpert = take(counts.perExpert.size());
    layout.tokenToRank = static_cast<std::uint8_t*>(arena_->take(counts.toRank.size()));
    const Id* given = arena_->put(std::span<const Id>(narrow));
    EXPECT_EQ(moeGetDispatchLayout(given, shape.tokens, &layout, arena_->stream()), moeSuccess)
        << moeGetLastError(nullptr);
    counts.perRank = arena_->get(layout.tokensPerRank, counts.perRank.size());
    counts.perDomain = arena_->get(layout.tokensPerDomain, counts.perDomain.size());
    counts.perExpert = arena_->get(layout.tokensPerExpert, counts.perExpert.size());
    counts.toRank = arena_->get(layout.tokenToRank, counts.toRank.size());
    return counts;
  }

  std::unique_ptr<Arena> arena_;
};

TEST_P(LayoutCount, IsThatOfAPlainLoop) {
  Rng rng(117);
  const Shape shapes[] = {{0, 8, 16, 2, 2},     {1, 8, 256, 2, 2},    {7, 3, 5, 3, 1},       {129, 8, 256, 8, 4},
                          {1000, 6, 97, 16, 8}, {4096, 8, 256, 2, 2}, {65, 32, 512, 160, 8}, {33, 1, 1024, 1024, 1}};
  for (const Shape& shape : shapes) {
    const std::vector<std::int64_t> ids = drawIds(shape, rng);
    const std::string name = fmt::format("{} tokens, {} experts, {} ranks", shape.tokens, shape.experts, shape.ranks);
    EXPECT_TRUE(counted<std::int64_t>(shape, ids) == countsOf(shape, ids)) << name;
    std::vector<std::int64_t> narrow;
    for (const std::int64_t id : ids) narrow.push_back(static_cast<std::int32_t>(id));
    EXPECT_TRUE(counted<std::int32_t>(shape, narrow) == countsOf(shape, narrow)) << name;
  }
}

TEST_P(LayoutCount, WritesOnlyWhatIsWanted) {
  const std::vector<std::int32_t> ids = {0, 3, 1, -1};
  moeDispatchLayout_t layout = MOE_DISPATCH_LAYOUT_INITIALIZER;
  layout.backend = GetParam();
  layout.topk = layout.nranks = 2;
  layout.experts = 4;
  const std::int32_t* given = arena_->put(std::span<const std::int32_t>(ids));
  EXPECT_EQ(moeGetDispatchLayout(given, 2, &layout, arena_->stream()), moeSuccess);
  layout.tokensPerRank = static_cast<std::int32_t*>(arena_->take(8));
  EXPECT_EQ(moeGetDispatchLayout(given, 2, &layout, arena_->stream()), moeSuccess);
  EXPECT_EQ(arena_->get(layout.tokensPerRank, 2), (std::vector<std::int32_t>{2, 1}));
}

TEST_P(LayoutCount, RefusesWhatIsWrong) {
  auto* words = static_cast<std::int32_t*>(arena_->take(1024));
  const auto refuses = [&](const char* sentence, const auto& spoil) {
    moeDispatchLayout_t layout = MOE_DISPATCH_LAYOUT_INITIALIZER;
    layout.backend = GetParam();
    layout.topk = layout.nranks = 2;
    layout.experts = 4;
    const void* ids = words;
    int tokens = 3;
    spoil(layout, ids, tokens);
    EXPECT_EQ(moeGetDispatchLayout(ids, tokens, &layout, arena_->stream()), moeInvalidArgument) << sentence;
    EXPECT_NE(std::string(moeGetLastError(nullptr)).find(sentence), std::string::npos) << moeGetLastError(nullptr);
  };
  refuses("layout.size is 3", [](auto& layout, auto&, auto&) { layout.size = 3; });
  refuses("tokens is -1, must be 0..", [](auto&, auto&, auto& tokens) { tokens = -1; });
  refuses("layout.backend is 0, must be 1..2", [](auto& layout, auto&, auto&) { layout.backend = moeBackendAuto; });
  refuses("layout.device is -2, must be -1 or more", [](auto& layout, auto&, auto&) { layout.device = -2; });
  refuses("layout.indexType is 2", [](auto& layout, auto&, auto&) { layout.indexType = 2; });
  refuses("layout.topk is 33, must be 1..32", [](auto& layout, auto&, auto&) { layout.topk = 33; });
  refuses("layout.nranks is 0", [](auto& layout, auto&, auto&) { layout.nranks = 0; });
  refuses("layout.experts is 1, must be 2..", [](auto& layout, auto&, auto&) { layout.experts = 1; });
  refuses("layout.domainSize is 3, must be 0 or a divisor of layout.nranks, which is 2",
          [](auto& layout, auto&, auto&) { layout.domainSize = 3; });
  refuses("topkIdx is NULL although there are tokens", [](auto&, auto& ids, auto&) { ids = nullptr; });
  refuses("topkIdx is ", [&](auto& layout, auto& ids, auto&) {
    layout.indexType = moeIndexInt64;
    ids = words + 1;
  });
  refuses("layout.tokensPerExpert (", [&](auto& layout, auto&, auto&) { layout.tokensPerExpert = words; });
  refuses("overlaps layout.tokensPerRank (", [&](auto& layout, auto&, auto&) {
    layout.tokensPerRank = words + 64;
    layout.tokensPerExpert = words + 65;
  });
}

MOE_INSTANTIATE_BACKENDS(LayoutCount);

}  // namespace
}  // namespace moe::test
