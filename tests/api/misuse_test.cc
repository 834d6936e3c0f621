// Every refusal that the host makes, in random order and with random values, on every rank separately. After each
// round, a verified step in both modes shows that the communicator still works.
#include <algorithm>
#include <functional>
#include <limits>

#include "support/api/moe_step.h"

namespace moe::test {
namespace {

constexpr int kRounds = 12;

moeHandleConfig_t shapeOf(int mode, int layout) {
  moeHandleConfig_t shape = MOE_HANDLE_CONFIG_INITIALIZER;
  shape.experts = 8;
  shape.topk = 2;
  shape.mode = mode;
  shape.layout = layout;
  shape.tokensMax = 8;
  return shape;
}

// A rank that makes wrong calls. It has a routed handle of each mode, and spoils one argument of each call.
class Misuser {
 public:
  Misuser(RankContext& context, std::uint64_t seed)
      : context_(context), rng_(mix(seed, static_cast<std::uint64_t>(context.rank))) {
    bytes_ = static_cast<std::uint8_t*>(context.arena.take(1 << 16));
    for (int mode : {moeModeHt, moeModeLl}) {
      for (int layout : {moeLayoutFlat, moeLayoutExpertMajor}) {
        const moeHandleConfig_t shape = shapeOf(mode, layout);
        moeHandle_t handle = nullptr;
        EXPECT_EQ(moeHandleCreate(&handle, context.comm, &shape), moeSuccess) << context.error();
        handles_.push_back(handle);
      }
    }
    context.meet();
    for (moeHandle_t handle : handles_) {
      EXPECT_EQ(moeRoute(handle, nullptr, nullptr, 0, context.stream()), moeSuccess) << context.error();
    }
  }
  ~Misuser() {
    for (moeHandle_t handle : handles_) EXPECT_EQ(moeHandleDestroy(handle), moeSuccess);
  }

  // Makes all mistakes once, in random order. Returns how many there were.
  int makeAll() {
    std::vector<std::function<void()>> mistakes;
    addHandleMistakes(mistakes);
    addRouteMistakes(mistakes);
    addDispatchMistakes(mistakes);
    addCombineMistakes(mistakes);
    addOtherMistakes(mistakes);
    for (std::size_t i = mistakes.size(); i > 1; --i) {
      std::swap(mistakes[i - 1], mistakes[static_cast<std::size_t>(rng_.below(static_cast<int>(i)))]);
    }
    for (const auto& mistake : mistakes) mistake();
    return static_cast<int>(mistakes.size());
  }

 private:
  using Mistakes = std::vector<std::function<void()>>;

  // A number that no field accepts: below 0, or far above every limit.
  std::int32_t absurd() { return rng_.coin() ? -1 - rng_.below(1 << 30) : (1 << 30) + rng_.below(1 << 30); }
  moeHandle_t someHandle() { return handles_[static_cast<std::size_t>(rng_.below(static_cast<int>(handles_.size())))]; }
  std::uint8_t* misaligned(int alignment) { return bytes_ + 64 * rng_.below(16) + rng_.between(1, alignment - 1); }

  void expectRefusal(moeResult_t result, const char* part) {
    EXPECT_TRUE(result == moeInvalidArgument || result == moeInvalidUsage) << part << ": " << result;
    EXPECT_NE(std::string(context_.error()).find(part), std::string::npos)
        << "\"" << context_.error() << "\" does not say \"" << part << "\"";
    moeResult_t failure = moeInternalError;
    EXPECT_EQ(moeCommGetAsyncError(context_.comm, &failure), moeSuccess);
    EXPECT_EQ(failure, moeSuccess) << part;
  }

  void addHandleMistakes(Mistakes& all) {
    using Field = std::int32_t moeHandleConfig_t::*;
    const std::pair<Field, const char*> fields[] = {{&moeHandleConfig_t::experts, "config.experts is "},
                                                    {&moeHandleConfig_t::topk, "config.topk is "},
                                                    {&moeHandleConfig_t::layout, "config.layout is "},
                                                    {&moeHandleConfig_t::mode, "config.mode is "},
                                                    {&moeHandleConfig_t::tokensMax, "config.tokensMax is "},
                                                    {&moeHandleConfig_t::expertAlignment, "config.expertAlignment"},
                                                    {&moeHandleConfig_t::indexType, "config.indexType is "},
                                                    {&moeHandleConfig_t::arrivals, "config.arrivals is "},
                                                    {&moeHandleConfig_t::duplicates, "config.duplicates is "},
                                                    {&moeHandleConfig_t::statistics, "config.statistics is "},
                                                    {&moeHandleConfig_t::combineWeights, "config.combineWeights is "},
                                                    {&moeHandleConfig_t::rowsBudget, "config.rowsBudget is "},
                                                    {&moeHandleConfig_t::expertCounts, "config.expertCounts is "}};
    for (const auto& [field, part] : fields) {
      all.push_back([this, field = field, part = part] {
        moeHandleConfig_t shape = shapeOf(moeModeHt, moeLayoutFlat);
        shape.*field = absurd();
        moeHandle_t handle = nullptr;
        expectRefusal(moeHandleCreate(&handle, context_.comm, &shape), part);
        EXPECT_EQ(handle, nullptr);
      });
    }
  }

  void addRouteMistakes(Mistakes& all) {
    all.push_back(
        [this] { expectRefusal(moeRoute(someHandle(), bytes_, nullptr, absurd(), context_.stream()), "tokens is "); });
    all.push_back([this] {
      expectRefusal(moeRoute(someHandle(), nullptr, nullptr, rng_.between(1, 8), context_.stream()), "topkIdx is NULL");
    });
    all.push_back(
        [this] { expectRefusal(moeRoute(someHandle(), misaligned(4), nullptr, 1, context_.stream()), "topkIdx is "); });
    all.push_back([this] {
      expectRefusal(moeRoute(someHandle(), bytes_, reinterpret_cast<float*>(misaligned(4)), 1, context_.stream()),
                    "topkWeights is ");
    });
    all.push_back([this] {
      moeDispatchArgs_t args = MOE_DISPATCH_ARGS_INITIALIZER;
      args.rowType = moeRowBf16;
      args.hidden = 8;
      expectRefusal(moeRouteDispatch(someHandle(), nullptr, nullptr, rng_.between(1, 8), &args, context_.stream()),
                    "topkIdx is NULL");
    });
  }

  void addDispatchMistakes(Mistakes& all) {
    const auto add = [&](const char* part, std::function<void(DispatchFields&)> spoil) {
      all.push_back([this, part, spoil = std::move(spoil)] {
        DispatchFields args;
        args.rowType = moeRowBf16;
        args.hidden = 8;
        spoil(args);
        const bool routes = rng_.coin();
        expectRefusal(routes ? moeRouteDispatch(someHandle(), nullptr, nullptr, 0, args.linked(), context_.stream())
                             : moeDispatch(someHandle(), args.linked(), context_.stream()),
                      part);
      });
    };
    add("args.rowType is ", [this](auto& args) { args.rowType = absurd(); });
    add("args.hidden is ", [this](auto& args) { args.hidden = absurd(); });
    add("args.hidden is ", [this](auto& args) { args.hidden = 8 * rng_.between(1, 7) + rng_.between(1, 7); });
    add("args.payloadCount is ", [this](auto& args) { args.payloadCount = absurd(); });
    add("args.payloads is NULL", [this](auto& args) { args.payloadCount = rng_.between(1, 4); });
    add("args.flags is ", [this](auto& args) { args.flags = 32 << rng_.below(20); });
    add("args.sms is ", [this](auto& args) { args.sms = -1 - rng_.below(1000); });
    add("args.outRowsMax is ", [this](auto& args) { args.outRowsMax = -1 - rng_.below(1 << 30); });
    add("args.outRows is NULL", [this](auto& args) { args.outRowsMax = rng_.between(1, 1000); });
    add("args.rows is ", [this](auto& args) { args.rows = misaligned(16); });
    add("args.cast.size is ", [this](auto& args) { args.cast.size = static_cast<std::size_t>(rng_.below(8)); });
    add("args.describe.size is ", [this](auto& args) { args.describe.size = static_cast<std::size_t>(rng_.below(8)); });
    add("args.describe.outTopkWeights is ",
        [this](auto& args) { args.describe.outTopkWeights = reinterpret_cast<float*>(misaligned(4)); });
    add("args.describe.outSourceIndex is ",
        [this](auto& args) { args.describe.outSourceIndex = reinterpret_cast<std::int32_t*>(misaligned(4)); });
    add("args.describe.outTopkIdx is ", [this](auto& args) { args.describe.outTopkIdx = misaligned(4); });
    add("args.describe.outExpertOffsets is ",
        [this](auto& args) { args.describe.outExpertOffsets = reinterpret_cast<std::int32_t*>(misaligned(4)); });
    add("args.cast.type is ", [this](auto& args) { args.cast.type = absurd(); });
    add("args.cast.type is none", [](auto& args) { args.cast.scaleLayout = 1; });
    add("args.cast.type is none", [](auto& args) { args.cast.flags = moeCastExact; });
    add("args.cast.type is none", [](auto& args) { args.cast.flags = moeWeightsOnInput; });
    add("args.cast.inputScale is ", [this](auto& args) { args.cast.inputScale = reinterpret_cast<float*>(bytes_); });
    add("args.cast.globalScale is ", [this](auto& args) { args.cast.globalScale = reinterpret_cast<float*>(bytes_); });
    add("args.padding is ", [this](auto& args) { args.padding = absurd(); });
    add("args.describe.idKind is ", [this](auto& args) { args.describe.idKind = absurd(); });
    add("overlaps args.outRows (", [this](auto& args) {
      args.outRows = bytes_;
      args.outRowsMax = 8;
      args.describe.outSourceIndex = reinterpret_cast<std::int32_t*>(bytes_) + rng_.below(8 * 4);
    });
    add("the block of moeMemAlloc has only ", [this](auto& args) {
      args.outRows = windowBlock();
      args.outRowsMax = std::numeric_limits<std::int64_t>::max() - rng_.below(1 << 20);
    });
  }

  void addCombineMistakes(Mistakes& all) {
    const auto add = [&](const char* part, std::function<void(CombineFields&)> spoil) {
      all.push_back([this, part, spoil = std::move(spoil)] {
        CombineFields args;
        args.rowType = moeRowBf16;
        args.hidden = 8;
        spoil(args);
        expectRefusal(moeCombine(someHandle(), args.linked(), context_.stream()), part);
      });
    };
    add("args.rowType is ", [this](auto& args) { args.rowType = absurd(); });
    add("args.rowType is opaque bytes", [](auto& args) { args.rowType = moeRowBytes, args.hidden = 16; });
    add("args.hidden is ", [this](auto& args) { args.hidden = absurd(); });
    add("args.weights is ", [this](auto& args) { args.weights = absurd(); });
    add("args.flags is ", [this](auto& args) { args.flags = rng_.coin() ? 2 : 32 << rng_.below(20); });
    add("args.sms is ", [this](auto& args) { args.sms = -1 - rng_.below(1000); });
    add("args.ready.completeSms is ", [this](auto& args) { args.ready.completeSms = -1 - rng_.below(1000); });
    add("args.ready.completeSms is ", [this](auto& args) { args.ready.completeSms = 1 + rng_.below(1000); });
    add("args.wire is ", [this](auto& args) { args.wire = absurd(); });
    add("args.rows is ", [this](auto& args) { args.rows = misaligned(16); });
    add("args.out is ", [this](auto& args) { args.out = misaligned(16); });
    add("args.bias0 is ", [this](auto& args) { args.bias0 = misaligned(16); });
    add("args.bias1 is ", [this](auto& args) { args.bias1 = misaligned(16); });
    add("args.grads.weightGrads is ",
        [this](auto& args) { args.carry(reinterpret_cast<float*>(misaligned(4)), nullptr); });
    add("args.topkWeights is ", [this](auto& args) { args.topkWeights = reinterpret_cast<float*>(misaligned(4)); });
    add("args.ready.words is ",
        [this](auto& args) { args.ready.words = reinterpret_cast<std::uint32_t*>(misaligned(4)); });
    add("args.grads.outWeightGrads is ",
        [this](auto& args) { args.carry(nullptr, reinterpret_cast<float*>(misaligned(4))); });
    add("args.ready.size is ", [this](auto& args) { args.ready.size = static_cast<std::size_t>(rng_.below(8)); });
  }

  void addOtherMistakes(Mistakes& all) {
    all.push_back([this] { expectRefusal(moeComplete(someHandle(), context_.stream()), "nothing of this handle"); });
    all.push_back([this] {
      moeHandleView_t view = MOE_HANDLE_VIEW_INITIALIZER;
      expectRefusal(moeHandleGetView(someHandle(), &view), "only an LL handle of layout RANK_MAJOR");
    });
    all.push_back([this] {
      moeArrivals_t arrivals = MOE_ARRIVALS_INITIALIZER;
      expectRefusal(moeHandleGetArrivals(someHandle(), &arrivals), "made without config.arrivals");
    });
    all.push_back([this] {
      void* memory = nullptr;
      expectRefusal(
          moeMemAlloc(context_.comm, (std::size_t{1} << 40) + static_cast<unsigned>(rng_.below(1000)), &memory),
          "the largest free block");
    });
    all.push_back([this] { expectRefusal(moeMemFree(context_.comm, bytes_), "was not returned by moeMemAlloc"); });
    all.push_back([this] { expectRefusal(moeMemAlloc(context_.comm, 16, nullptr), "memory is NULL"); });
    all.push_back([this] { expectRefusal(moeHandleGetCounts(someHandle(), nullptr), "counts is NULL"); });
    all.push_back([this] {
      moePeerInfo_t info = MOE_PEER_INFO_INITIALIZER;
      expectRefusal(moeCommGetPeerInfo(context_.comm, absurd(), &info), "peer is ");
    });
  }

  void* windowBlock() {
    if (block_ != nullptr) return block_;
    EXPECT_EQ(moeMemAlloc(context_.comm, 1024, &block_), moeSuccess) << context_.error();
    return block_;
  }

  RankContext& context_;
  Rng rng_;
  std::uint8_t* bytes_;
  std::vector<moeHandle_t> handles_;
  void* block_ = nullptr;
};

class Misuse : public OnBackend {};

TEST_P(Misuse, IsRefusedAndTheNextStepIsRight) {
  world(3, config(), [&](RankContext& context) {
    int mine = 0;
    Misuser misuser(context, 4);
    for (int round = 0; round < kRounds; ++round) {
      mine += misuser.makeAll();
      for (int mode : {moeModeHt, moeModeLl}) {
        StepCase c;
        c.mode = mode;
        c.layout = round % 4;
        c.weightGrads = round % 2 != 0;
        c.seed = static_cast<unsigned>(round) + 1;
        MoeStep step(context, c);
        step.prepare(round);
        step.route();
        step.dispatch();
        step.finish();
      }
    }
    EXPECT_GE(mine, 50 * kRounds);
    if (context.rank == 0) std::printf("per rank: %d refusals, %d verified steps\n", mine, 2 * kRounds);
  });
}

MOE_INSTANTIATE_BACKENDS(Misuse);

}  // namespace
}  // namespace moe::test
