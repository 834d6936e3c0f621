// The soak of moe_perf draws what it should, passes on the host backend, and finds one spoiled element of any kind. A
// soak that cannot fail would prove nothing.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "moecomm.h"
#include "perf/moe_perf/bad_entry.h"
#include "perf/moe_perf/soak.h"
#include "perf/moe_perf/soak_plan.h"

namespace moe::test {
namespace {

using namespace moe::perf;

constexpr int kRanks = 3;
constexpr int kSpoiler = 1;  // another rank than the one whose result is checked

Options makeLimits(int iterations) {
  Options limits;
  limits.soak = iterations;
  limits.backend = moeBackendHost;
  limits.hidden = 256;
  limits.topk = 4;
  limits.experts = 11;
  limits.tokens = {24};
  return limits;
}

// ---- Drawing ----

std::vector<SoakShape> drawMany() {
  Options limits = makeLimits(100000);
  limits.hidden = 7168;
  limits.topk = 8;
  limits.experts = 256;
  limits.tokens = {4096};
  std::vector<SoakShape> all;
  for (limits.seed = 1; limits.seed <= 10; ++limits.seed) {
    for (SoakShape& shape : drawSoak(limits, kRanks)) all.push_back(std::move(shape));
  }
  return all;
}

TEST(PerfSoak, DrawsTheSameOnEveryRankAndAsManyIterationsAsAsked) {
  const auto shapes = drawSoak(makeLimits(777), kRanks);
  const auto again = drawSoak(makeLimits(777), kRanks);
  ASSERT_EQ(shapes.size(), again.size());
  int iterations = 0;
  for (std::size_t i = 0; i < shapes.size(); ++i) {
    EXPECT_EQ(shapes[i].describe(), again[i].describe());
    iterations += shapes[i].iterations;
  }
  EXPECT_EQ(iterations, 777);
}

TEST(PerfSoak, DrawsEveryLayoutAndFormatInBothModes) {
  std::set<std::tuple<int, int, Format>> drawn;
  for (const SoakShape& shape : drawMany())
    drawn.emplace(shape.options.mode, shape.options.layout, shape.options.format);
  EXPECT_EQ(drawn.size(), 2U * 4U * 4U);
}

TEST(PerfSoak, DrawsShapesThatTheLibraryTakes) {
  for (const SoakShape& shape : drawMany()) {
    const Options& options = shape.options;
    SCOPED_TRACE(shape.describe());
    EXPECT_EQ(options.rowBytes() % 16, 0);
    EXPECT_EQ(options.combineRowBytes() % 16, 0);
    EXPECT_LE(options.hidden, 7168);
    EXPECT_LE(options.topk, std::min(options.experts, 8));
    EXPECT_LE(options.experts, 256);
    EXPECT_LE(options.groups, options.experts);
    EXPECT_LE(options.groupsPerToken, options.groups);
    EXPECT_LE(shape.load.tokensMax, options.mode == moeModeLl ? 512 : 4096);
    for (const auto& tokens : shape.load.tokens) {
      ASSERT_EQ(tokens.size(), static_cast<std::size_t>(kRanks));
      EXPECT_LE(*std::max_element(tokens.begin(), tokens.end()), shape.load.tokensMax);
    }
  }
}

// The options of the command line are drawn too, because not every shape can have them.
TEST(PerfSoak, DrawsWireFormatsAndScalesAnew) {
  Options limits = makeLimits(2000);
  limits.wire = Wire::nvfp4;
  limits.cast = Cast::nvfp4;
  limits.scales = moeScales128x4;
  for (const SoakShape& shape : drawSoak(limits, kRanks)) {
    const Options& options = shape.options;
    SCOPED_TRACE(shape.describe());
    EXPECT_TRUE(options.wire == Wire::row || options.hidden % kScaleColumns == 0);
    EXPECT_TRUE(options.scales == moeScalesRowMajor || options.cast != Cast::none);
  }
}

TEST(PerfSoak, DrawsCornersNowAndThen) {
  const auto shapes = drawMany();
  const auto drawn = [&](const std::function<bool(const SoakShape&)>& is) {
    return std::any_of(shapes.begin(), shapes.end(), is);
  };
  EXPECT_TRUE(drawn([](const SoakShape& s) { return s.load.at(0, 0) == 0 && s.load.at(0, 1) > 0; }));
  EXPECT_TRUE(drawn([](const SoakShape& s) { return s.load.at(0, 0) == 4096; }));
  EXPECT_TRUE(drawn([](const SoakShape& s) { return s.options.hidden == 7168 && s.options.mode == moeModeLl; }));
  EXPECT_TRUE(drawn([](const SoakShape& s) { return s.options.experts % kRanks != 0; }));
  EXPECT_TRUE(drawn([](const SoakShape& s) { return s.options.experts < kRanks; }));
  EXPECT_TRUE(drawn([](const SoakShape& s) { return s.options.interleave && s.options.sendOnly; }));
  EXPECT_TRUE(drawn([](const SoakShape& s) { return s.options.window == 0 && s.options.mode == moeModeHt; }));
  EXPECT_TRUE(drawn([](const SoakShape& s) {
    return s.options.routing == Routing::groupLimited && s.options.groupsPerToken < s.options.groups;
  }));
  const auto contiguous = [](const SoakShape& s) { return s.options.scales == moeScalesTokenContiguous; };
  for (int layout = 0; layout <= moeLayoutRankMajor; ++layout) {
    EXPECT_TRUE(drawn([&](const SoakShape& s) { return contiguous(s) && s.options.layout == layout; })) << layout;
  }
  const auto blocked = [](const SoakShape& s) { return s.options.scales == moeScales128x4; };
  for (int layout = 0; layout <= moeLayoutRankMajor; ++layout) {
    EXPECT_TRUE(drawn([&](const SoakShape& s) { return blocked(s) && s.options.layout == layout; })) << layout;
  }
  EXPECT_FALSE(drawn([&](const SoakShape& s) { return blocked(s) && castScalesAreFloats(s.options.cast); }));
  EXPECT_FALSE(drawn([&](const SoakShape& s) {
    return (contiguous(s) || blocked(s)) && (s.options.cast == Cast::none || s.options.staysInSlots());
  }));
}

// ---- Finding ----

// Flips a bit of the data that the n-th check of a kind reads, and restores it after the check. This looks as if the
// library had delivered one wrong element once.
template <class Check>
class SpoilingDevice : public Device {
 public:
  explicit SpoilingDevice(int which) : countdown_(which) {}

  void run(const Work& work) override {
    const Check* check = std::get_if<Check>(&work);
    const bool spoils = check != nullptr && check->rowCount() > 0 && countdown_-- == 0;
    if (spoils) *firstByte(*check) ^= std::byte{1};
    host_->run(work);
    if (spoils) *firstByte(*check) ^= std::byte{1};
  }

  std::string name() const override { return host_->name(); }
  moeStream_t stream() const override { return host_->stream(); }
  void* allocate(std::size_t bytes) override { return host_->allocate(bytes); }
  void free(void* memory) override { host_->free(memory); }
  void upload(void* to, const void* from, std::size_t bytes) override { host_->upload(to, from, bytes); }
  void download(void* to, const void* from, std::size_t bytes) override { host_->download(to, from, bytes); }
  void clear(void* memory, std::size_t bytes) override { host_->clear(memory, bytes); }
  void reserveMarks(int count) override { host_->reserveMarks(count); }
  void mark(int index) override { host_->mark(index); }
  double microsecondsBetween(int first, int second) override { return host_->microsecondsBetween(first, second); }
  void wait() override { host_->wait(); }
  bool hasGraphs() const override { return host_->hasGraphs(); }
  int capture(const std::function<void()>& record) override { return host_->capture(record); }
  void launch(int graph) override { host_->launch(graph); }
  void dropGraphs() override { host_->dropGraphs(); }
  int blocksOf(const std::function<void()>& record) override { return host_->blocksOf(record); }

 private:
  static std::byte* firstByte(const Check& check) {
    if constexpr (std::is_same_v<Check, VerifyRows>) {
      return bytes(check.rows) + check.specs[0].row * check.shape.rowBytes();
    } else if constexpr (std::is_same_v<Check, VerifyWords>) {
      return bytes(check.actual) + 4 * (check.specs == nullptr ? 0 : check.specs[0].row * check.perRow);
    } else {
      return bytes(check.out);
    }
  }
  static std::byte* bytes(const void* memory) { return static_cast<std::byte*>(const_cast<void*>(memory)); }

  std::unique_ptr<Device> host_ = makeHostDevice();
  int countdown_;
};

struct Deleter {
  void operator()(moeComm* comm) const { moeCommDestroy(comm); }
};

// One rank's part of a soak. Throws if a call fails.
SoakResult soakRank(const Options& limits, const moeUniqueId_t& id, Group& group, Device& device) {
  moeConfig_t config = MOE_CONFIG_INITIALIZER;
  config.backend = limits.backend;
  config.topkMax = limits.topk;
  config.expertsMax = limits.experts;
  sizeForSoak(limits, kRanks, config);
  moeComm_t comm = nullptr;
  check(moeCommInit(&comm, kRanks, group.rank(), &id, &config), nullptr, "moeCommInit");
  const std::unique_ptr<moeComm, Deleter> owner(comm);
  return runSoak(limits, device, comm, group, [](const std::string&) {});
}

// Rank 0's result of a soak in which rank kSpoiler uses the device `other`.
SoakResult soakWith(const Options& limits, Device& other) {
  moeUniqueId_t id;
  check(moeGetUniqueId(&id), nullptr, "moeGetUniqueId");
  ThreadMeeting meeting(kRanks);
  std::vector<SoakResult> results(kRanks);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < kRanks; ++rank) {
    threads.emplace_back([&, rank] {
      const auto group = makeThreadGroup(meeting, rank, kRanks);
      const auto host = makeHostDevice();
      try {
        results[static_cast<std::size_t>(rank)] = soakRank(limits, id, *group, rank == kSpoiler ? other : *host);
      } catch (const std::exception& error) {
        ADD_FAILURE() << "rank " << rank << ": " << error.what();
        meeting.giveUp();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  return results[0];
}

TEST(PerfSoak, IsRightInManyShapes) {
  const auto device = makeHostDevice();
  const SoakResult result = soakWith(makeLimits(1000), *device);
  EXPECT_TRUE(result.verdict.correct());
  EXPECT_EQ(result.iterations, 1000);
  EXPECT_GT(result.llIterations, 300);
  EXPECT_LT(result.llIterations, 700);
  EXPECT_GT(result.shapes, 30);
  EXPECT_TRUE(result.wrongShapes.empty());
}

// Half of the iterations deliver nothing, and the others are right. What must be nothing is checked too.
TEST(PerfSoak, GoesOnAfterFaults) {
  Options limits = makeLimits(1000);
  limits.faultsOneIn = 2;
  const auto device = makeHostDevice();
  const SoakResult result = soakWith(limits, *device);
  EXPECT_TRUE(result.verdict.correct());
  EXPECT_EQ(result.iterations, 1000);
  EXPECT_GT(result.faults, 350);
  EXPECT_LT(result.faults, 600);
  EXPECT_TRUE(result.wrongShapes.empty());
}

TEST(PerfSoak, FindsOneSpoiledElementWhereNothingCame) {
  Options limits = makeLimits(60);
  limits.faultsOneIn = 1;  // all iterations whose ranks send a token
  SpoilingDevice<VerifyCombine> device(3);
  const SoakResult result = soakWith(limits, device);
  EXPECT_GT(result.faults, 40);
  EXPECT_EQ(result.verdict.wrongCombines, 1U);
  EXPECT_EQ(result.verdict.wrong(), 1U);
}

TEST(PerfSoak, DrawsBadEntriesThatTheLibraryRefuses) {
  std::set<std::int32_t> ids;
  const Options options = makeLimits(1);
  const Load load{8, {std::vector<int>{0, 3, 8}, std::vector<int>{0, 0, 0}}};
  for (std::uint64_t seed = 1; seed <= 100; ++seed) {
    const BadEntry bad = drawBadEntry(options, seed, load, 0);
    ASSERT_TRUE(bad.rank == 1 || bad.rank == 2);
    const std::size_t tokens = bad.rank == 1 ? 3 : 8;
    const auto topk = static_cast<std::size_t>(options.topk);
    const std::vector<std::int32_t> given(tokens * topk, 5);
    const std::vector<std::int32_t> experts = bad.putInto(given, options.topk);
    const std::size_t at = static_cast<std::size_t>(bad.token) * topk + static_cast<std::size_t>(bad.k);
    EXPECT_EQ(experts.at(at), bad.expert);
    if (bad.expert == 0) {
      EXPECT_EQ(experts.at(at - 1), 0);
    }
    ids.insert(bad.expert);
  }
  EXPECT_EQ(ids, (std::set<std::int32_t>{-2, 0, options.experts}));
  EXPECT_FALSE(drawBadEntry(options, 1, load, 1).exists());
}

TEST(PerfSoak, FindsOneSpoiledElementOfARow) {
  SpoilingDevice<VerifyRows> device(17);
  const SoakResult result = soakWith(makeLimits(100), device);
  EXPECT_FALSE(result.verdict.correct());
  EXPECT_EQ(result.verdict.wrongPayloads, 1U);
  EXPECT_EQ(result.verdict.wrong(), 1U);
  EXPECT_EQ(result.wrongShapes.size(), 1U);
}

TEST(PerfSoak, FindsOneSpoiledIndex) {
  SpoilingDevice<VerifyWords> device(29);
  const SoakResult result = soakWith(makeLimits(100), device);
  EXPECT_EQ(result.verdict.wrongMetadata, 1U);
  EXPECT_EQ(result.verdict.wrong(), 1U);
}

TEST(PerfSoak, FindsOneSpoiledSum) {
  SpoilingDevice<VerifyCombine> device(3);
  const SoakResult result = soakWith(makeLimits(100), device);
  EXPECT_EQ(result.verdict.wrongCombines, 1U);
  EXPECT_EQ(result.verdict.wrong(), 1U);
}

}  // namespace
}  // namespace moe::test
