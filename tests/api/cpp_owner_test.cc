// The owners of moecomm.hpp: how they move and end, what they refuse, and the errors they throw.
#include <cstring>
#include <mutex>

#include "support/api/cpp_world.h"

namespace moe::test {
namespace {

using moecomm::Communicator;
using moecomm::Handle;
using moecomm::HandleConfig;
using moecomm::Pending;
using moecomm::WindowMemory;

template <class Owner>
constexpr bool isMoveOnly =
    std::is_nothrow_move_constructible_v<Owner>&& std::is_nothrow_move_assignable_v<Owner> &&
    !std::is_copy_constructible_v<Owner> && !std::is_copy_assignable_v<Owner> && std::is_nothrow_destructible_v<Owner>;
static_assert(isMoveOnly<Communicator> && isMoveOnly<Handle> && isMoveOnly<Pending> && isMoveOnly<WindowMemory<float>>);

// Another element, or a loss of const, is no conversion.
static_assert(std::is_convertible_v<std::vector<float>&, moecomm::Span<const float>>);
static_assert(!std::is_convertible_v<const std::vector<float>&, moecomm::Span<float>>);
static_assert(!std::is_convertible_v<std::vector<int>&, moecomm::Span<float>>);

// Counts the library's log lines that have a text.
struct LineCounter {
  const char* text;
  std::mutex mutex = {};
  int lines = 0;

  int count() {
    const std::lock_guard lock(mutex);
    return lines;
  }
  static void take(void* self, std::int32_t, const char* line) {
    auto& counter = *static_cast<LineCounter*>(self);
    const std::lock_guard lock(counter.mutex);
    if (std::strstr(line, counter.text) != nullptr) ++counter.lines;
  }
};

TEST(CppOwner, HandlesEndOnceWithTheirScopeOrTheirCommunicator) {
  LineCounter ends{"is destroyed"};
  moecomm::Config config = cppConfig();
  config.log = LineCounter::take;
  config.logUser = &ends;
  config.logLevel = moeLogDebug;
  Handle outlives;
  cppWorld(1, config, [&](Communicator& comm, int) {
    {
      const Handle scoped(comm, HandleConfig(4, 2));
      EXPECT_EQ(ends.count(), 0);
    }
    EXPECT_EQ(ends.count(), 1);
    Handle first(comm, HandleConfig(4, 2)), second(comm, HandleConfig(8, 2));
    const moeHandle_t native = second.get();
    first = std::move(second);
    EXPECT_EQ(ends.count(), 2) << "a handle ends when another one takes its place";
    EXPECT_EQ(first.get(), native);
    EXPECT_FALSE(second);
    expectError(moeInvalidUsage, "the handle is empty", [&] { second.route({}); });
    first.route({});
    first.destroy();
    first.destroy();
    EXPECT_EQ(ends.count(), 3);
    expectError(moeInvalidUsage, "the handle is empty", [&] { first.status(); });
    outlives = Handle(comm, HandleConfig(4, 2));
    comm.destroy();
    comm.destroy();
    EXPECT_EQ(ends.count(), 4);
    EXPECT_FALSE(outlives);
    expectError(moeInvalidUsage, "the communicator has been destroyed", [&] { outlives.route({}); });
  });
  outlives.destroy();
  EXPECT_EQ(ends.count(), 4);
}

TEST(CppOwner, WindowMemoryIsGivenBackOnce) {
  WindowMemory<float> outlives;
  cppWorld(1, cppConfig(), [&](Communicator& comm, int) {
    const std::size_t all = (std::size_t{1} << 20) / sizeof(float);
    {
      WindowMemory<float> memory(comm, all);
      EXPECT_EQ(moecomm::Span<float>(memory).size(), all);
      expectError(moeInvalidArgument, "the largest free block", [&] { WindowMemory<float>(comm, 1); });
      WindowMemory<float> moved = std::move(memory);
      EXPECT_EQ(memory.data(), nullptr);
      EXPECT_EQ(memory.size(), 0u);
      moved.data()[all - 1] = 1;
    }
    WindowMemory<float> again(comm, all);
    again.destroy();
    again.destroy();
    outlives = WindowMemory<float>(comm, all / 2);
    outlives = WindowMemory<float>(comm, all / 2);
    outlives = WindowMemory<float>(comm, 1);
    expectError(moeInvalidArgument, "more than an address space", [&] { WindowMemory<float>(comm, SIZE_MAX / 2); });
    WindowMemory<float> foreign(comm, 1);
    moecomm::check(moeMemFree(comm.get(), foreign.data()), comm.get());
    expectError(moeInvalidArgument, "memory", [&] { foreign.destroy(); });
  });
  outlives.destroy();
}

TEST(CppOwner, AMemPoolIsUsedAsLongAsTheObjectLives) {
  cppWorld(1, cppConfig(), [](Communicator& comm, int) {
    {
      const moecomm::MemPoolUse use(comm);
      moeMemPoolFree(moeMemPoolAlloc(64, -1, nullptr), 64, -1, nullptr);
      EXPECT_STREQ(moeGetLastError(nullptr), "");
    }
    EXPECT_EQ(moeMemPoolAlloc(64, -1, nullptr), nullptr);
    comm.destroy();
    expectError(moeInvalidUsage, "the communicator is empty", [&] { moecomm::MemPoolUse again(comm); });
  });
}

TEST(CppOwner, CommunicatorsMoveAndDescribeThemselves) {
  EXPECT_EQ(moecomm::version(), MOE_VERSION_CODE);
  EXPECT_GE(moecomm::limits().ranksMax, 4);
  EXPECT_GT(moecomm::memorySize(4, cppConfig()).windowBytes, moecomm::memorySize(4, cppConfig()).heapBytes);
  cppWorld(4, cppConfig(), [](Communicator& comm, int rank) {
    const moeComm_t native = comm.get();
    Communicator moved = std::move(comm);
    EXPECT_EQ(moved.get(), native);
    EXPECT_FALSE(comm);
    expectError(moeInvalidUsage, "the communicator is empty", [&] { comm.info(); });
    expectError(moeInvalidUsage, "the communicator is empty", [&] { Handle(comm, HandleConfig(4, 2)); });
    EXPECT_EQ(moved.info().rank, rank);
    EXPECT_EQ(moved.info().nranks, 4);
    EXPECT_EQ(moved.peer(3 - rank).rank, 3 - rank);
    EXPECT_EQ(moved.limits().tokensMax, 32);
    moved.setTimeout(15000);
    EXPECT_EQ(moved.info().timeoutMs, 15000);
    EXPECT_EQ(moved.lastError(), "");
    comm = std::move(moved);
  });
}

TEST(CppOwner, CommunicatorsSleepAndWake) {
  cppWorld(2, cppConfig(), [](Communicator& comm, int) {
    Handle handle(comm, HandleConfig(4, 2));
    moecomm::WindowMemory<float> memory(comm, 8);
    float* const at = memory.data();
    at[3] = 1;
    comm.suspend();
    expectError(moeInvalidUsage, "moeRoute: the communicator is suspended", [&] { handle.route({}); });
    expectError(moeInvalidUsage, "suspended already", [&] { comm.suspend(); });
    comm.resume();
    EXPECT_EQ(memory.data(), at);
    EXPECT_EQ(at[3], 0);
    handle.route({});
    expectError(moeInvalidUsage, "is not suspended", [&] { comm.resume(); });
  });
}

TEST(CppOwner, ErrorsHaveTheResultAndTheSentence) {
  expectError(moeInvalidArgument, "nranks is 0", [] { Communicator(0, 0, moecomm::makeUniqueId(), cppConfig()); });
  expectError(moeInvalidArgument, "nranks is 0", [] { moecomm::memorySize(0); });
  cppWorld(1, cppConfig(), [](Communicator& comm, int) {
    expectError(moeInvalidArgument, "config.topk is 9, must be 1..4", [&] { Handle(comm, HandleConfig(4, 9)); });
    EXPECT_NE(comm.lastError().find("config.topk is 9"), std::string::npos);
    Handle handle(comm, HandleConfig(4, 2));
    std::vector<float> row(4), out(4);
    expectError(moeInvalidUsage, "moeRoute has not been called", [&] { handle.dispatch({row, out, 4}); });
    expectError(moeInvalidUsage, "", [&] { handle.counts(); });
    expectError(moeInvalidUsage, "without config.arrivals", [&] { handle.arrivals(); });
    expectError(moeInvalidUsage, "without config.statistics", [&] { handle.statistics(); });
    expectError(moeInvalidUsage, "", [&] { handle.view(); });
    expectError(moeInvalidArgument, "tokensBound is 99", [&] { handle.setTokensBound(99); });
    expectError(moeInvalidUsage, "MOECOMM_DUMP_FOLDER", [&] { comm.dump(); });
    EXPECT_THROW(moecomm::check(moeCommSetTimeout(comm.get(), -1), comm.get()), std::runtime_error);
    EXPECT_EQ(comm.asyncError(), moeSuccess);
    comm.abort();
    EXPECT_EQ(comm.asyncError(), moeAborted);
    expectError(moeAborted, "moeCommAbort was called", [&] { handle.route({}); });
  });
}

TEST(CppOwner, ALeavingRankEndsTheWaitOfOthersWithAnError) {
  for (const bool byScope : {false, true}) {
    cppWorld(2, cppConfig(), [&](Communicator& comm, int rank) {
      Handle handle(comm, HandleConfig(2, 1));
      if (rank == 0 && byScope) {
        const Communicator ends = std::move(comm);
        return;
      }
      if (rank == 0) return comm.destroy();
      expectError(moeRemoteError, "rank 0 has left", [&] {
        handle.route({});
        handle.route({});
      });
      EXPECT_EQ(comm.asyncError(), moeRemoteError);
      comm.destroy();  // a failed communicator ends without an error too
    });
  }
}

TEST(CppOwner, RoutesOfAWrongSizeAreRefused) {
  cppWorld(1, cppConfig(), [](Communicator& comm, int) {
    HandleConfig config(4, 2);
    config.tokensMax = 4;
    Handle handle(comm, config);
    const std::vector<std::int32_t> idx(5), good(4, -1), many(10, -1);
    const std::vector<std::int64_t> wide(4);
    const std::vector<float> weights(3);
    expectError(moeInvalidArgument, "topkIdx has 5 elements, must have [tokens][topk] with topk 2",
                [&] { handle.route({idx}); });
    expectError(moeInvalidArgument, "topkIdx holds int64, but config.indexType of the handle is int32",
                [&] { handle.route({wide}); });
    expectError(moeInvalidArgument, "topkWeights has 3 elements, must have [tokens][topk] = [2][2]", [&] {
      handle.route({good, weights});
    });
    expectError(moeInvalidArgument, "tokens is 5, must be 0..4", [&] { handle.route({many}); });
    handle.route({moecomm::Span(many).first(8)});
    handle.setTokensBound(1);
    expectError(moeInvalidArgument, "tokens is 2, must be 0..1", [&] { handle.route({good}); });
    handle.setTokensBound(0);
    handle.route({good});
  });
}

TEST(CppOwner, APlacementGivesExpertsTheirPlaces) {
  cppWorld(1, cppConfig(), [](Communicator& comm, int) {
    Handle handle(comm, HandleConfig(4, 2));
    const std::vector<std::int32_t> idx = {0, 1}, places = {2, 1, 0, 1}, two = {0, 1}, ranks = {0, 0}, local = {3, 1};
    const auto rows = [&] {
      const moeCounts_t counts = handle.counts();
      return std::vector<std::int32_t>(counts.rowsPerExpert, counts.rowsPerExpert + counts.localExperts);
    };
    handle.setPlacement(moecomm::Placement(3, places));
    handle.route({idx});
    EXPECT_EQ(rows(), (std::vector<std::int32_t>{0, 1, 1, 0}));
    handle.setPlacement(moecomm::Placement(2, two, ranks, local));
    handle.route({idx});
    EXPECT_EQ(rows(), (std::vector<std::int32_t>{0, 1, 0, 1}));
    handle.clearPlacement();
    handle.route({idx});
    EXPECT_EQ(rows(), (std::vector<std::int32_t>{1, 1, 0, 0}));
    expectError(moeInvalidArgument, "placement.logical does not name expert 3 of 0..3",
                [&] { handle.setPlacement(moecomm::Placement(4, places)); });
    expectError(moeInvalidArgument, "localExperts has 2 elements, must have [physicalExperts] = [4]",
                [&] { moecomm::Placement(3, places, places, local); });
  });
}

TEST(CppOwner, OutputsOfADispatchThatAreTooSmallAreRefused) {
  cppWorld(1, cppConfig(), [](Communicator& comm, int) {
    Handle flat(comm, HandleConfig(4, 2));
    HandleConfig config(4, 2);
    config.layout = moeLayoutExpertMajorPadded;
    config.tokensMax = 4;
    Handle padded(comm, config);
    const std::vector<std::int32_t> topk(4, -1);
    flat.route({topk}), padded.route({topk});
    std::vector<float> rows(2 * 4), out(3 * 4), floats(5);
    std::vector<std::int32_t> ints(2);
    std::vector<std::int64_t> longs(3);
    const auto refuses = [&](Handle& handle, const char* sentence, auto set) {
      moecomm::DispatchArgs args(rows, out, 4);
      set(args);
      expectError(moeInvalidArgument, sentence, [&] { handle.dispatch(args); });
      expectError(moeInvalidArgument, sentence, [&] { handle.routeDispatch({topk}, args); });
    };
    using Args = moecomm::DispatchArgs;
    refuses(flat, "args.rows has 4 elements, must have [tokens][hidden] = [2][4]",
            [&](Args& args) { args.setRows(moecomm::Span(rows).first(4), out, 4); });
    refuses(flat, "args.outRows has 12 elements, must have [outRows][hidden] = [5][4]",
            [&](Args& args) { args.outRowsMax = 5; });
    refuses(flat, "args.payloads[0].in has 20 elements, must have [tokens][bytes] = [2][16]",
            [&](Args& args) { args.setPayload(floats, ints, 16); });
    refuses(flat, "args.payloads[0].out has 8 elements, must have [outRows][bytes] = [3][16]",
            [&](Args& args) { args.setPayload(rows, ints, 16); });
    refuses(flat, "args.describe.outTopkIdx has 2 elements, must have [outRows][topk] = [3][2]",
            [&](Args& args) { args.setOutTopkIdx(moecomm::Span(ints)); });
    refuses(flat, "args.describe.outTopkIdx holds int64",
            [&](Args& args) { args.setOutTopkIdx(moecomm::Span(longs)); });
    refuses(flat, "args.describe.outTopkWeights has 5 elements, must have [outRows][topk] = [3][2]",
            [&](Args& args) { args.setOutTopkWeights(floats); });
    refuses(padded, "args.describe.outTopkWeights has 5 elements, must have [outRows] = [16]",
            [&](Args& args) { args.setOutTopkWeights(floats); });
    refuses(flat, "args.describe.outSourceIndex has 2 elements, must have [outRows] = [3]",
            [&](Args& args) { args.setOutSourceIndex(ints); });
    refuses(padded, "args.describe.outRowExperts has 2 elements, must have [outRows] = [16]",
            [&](Args& args) { args.setOutRowExperts(ints); });
    refuses(padded, "args.describe.outLayoutRange has 3 elements, must have [localExperts][nranks] = [4][1]",
            [&](Args& args) { args.setOutLayoutRange(longs); });
    refuses(padded, "args.describe.outExpertOffsets has 2 elements, must have [localExperts + 1] = [5]",
            [&](Args& args) { args.setOutExpertOffsets(ints); });
    refuses(padded, "args.outRows has 12 elements, must have [outRows][hidden] = [16][4]",
            [&](Args& args) { args.padding = moePadRows; });
    refuses(flat, "args.describe.cumulativeRows has 2 elements, must have [localExperts] = [4]",
            [&](Args& args) { args.setCumulativeRows(ints); });
    refuses(flat, "args.describe.cumulativeWaitNs has 0 elements, must have [nranks] = [1]", [&](Args& args) {
      args.setCumulativeWaitNs({longs.data(), 0});
    });
    refuses(flat, "args.cast.inputScale has 0 elements, must have [1] = [1]", [&](Args& args) {
      args.setInputScale({floats.data(), 0});
    });
    refuses(flat, "args.cast.globalScale has 0 elements, must have [1] = [1]", [&](Args& args) {
      args.setGlobalScale({floats.data(), 0});
    });
    moecomm::DispatchArgs args(rows, out, 4);
    args.setOutSourceIndex(ints);
    std::int32_t enough[3] = {};
    args.describe.outSourceIndex = enough;  // an address that the caller passes is not measured by the array before it
    flat.dispatch(args);
  });
}

TEST(CppOwner, ArraysOfACombineThatAreTooSmallAreRefused) {
  cppWorld(1, cppConfig(), [](Communicator& comm, int) {
    Handle handle(comm, HandleConfig(4, 2));
    const std::vector<std::int32_t> topk = {0, 1, 2, 3};
    const std::vector<float> rows(2 * 4, 1.0f), few(4), odd(3);
    std::vector<float> arrived(3 * 4), sums(2 * 4), grads(3), small(1);
    std::vector<std::int64_t> none;
    handle.routeDispatch({topk}, {rows, arrived, 4});
    const auto refuses = [&](const char* sentence, auto set) {
      moecomm::CombineArgs args(arrived, sums, 4);
      set(args);
      expectError(moeInvalidArgument, sentence, [&] { handle.combine(args); });
    };
    using Args = moecomm::CombineArgs;
    refuses("args.rows has 4 elements, must have [outRows][hidden] = [2][4]",
            [&](Args& args) { args.setRows(few, sums, 4); });
    refuses("args.out has 1 elements, must have [tokens][hidden] = [2][4]",
            [&](Args& args) { args.setRows(arrived, small, 4); });
    refuses("args.bias0 has 4 elements, must have [tokens][hidden] = [2][4]", [&](Args& args) { args.setBias0(few); });
    refuses("args.bias1 has 4 elements, must have [tokens][hidden] = [2][4]", [&](Args& args) { args.setBias1(few); });
    refuses("args.grads.weightGrads has 3 elements, must have [outRows][topk] = [2][2]",
            [&](Args& args) { args.setWeightGrads(odd, grads); });
    refuses("args.grads.outWeightGrads has 3 elements, must have [tokens][topk] = [2][2]",
            [&](Args& args) { args.setWeightGrads(rows, grads); });
    refuses("args.topkWeights has 3 elements, must have [tokens][topk] = [2][2]",
            [&](Args& args) { args.setTopkWeights(odd); });
    std::int64_t wait = 0;
    refuses("args.cumulativeWaitNs has 0 elements, must have [nranks] = [1]", [&](Args& args) {
      args.setCumulativeWaitNs({&wait, 0});
    });
    expectError(moeInvalidArgument, "args.bias0 holds another type than args.rows",
                [&] { Args(arrived, sums, 4).setBias0(topk); });
    handle.combine({arrived, sums, 4});
    EXPECT_EQ(sums, rows);
  });
}

// The rows that a combine must read depend on the latest route and its bound.
TEST(CppOwner, SizesFollowTheRoute) {
  cppWorld(1, cppConfig(), [](Communicator& comm, int) {
    Handle flat(comm, HandleConfig(4, 2));
    HandleConfig config(4, 2, moeLayoutRankMajor);
    config.tokensMax = 4;
    Handle slots(comm, config);
    const std::vector<std::int32_t> two = {0, 1, 2, 3}, one = {0, 1}, none = {-1, -1};
    const std::vector<float> rows(4 * 4, 1.0f), single(4, 1.0f);
    std::vector<float> out(4 * 4), sums(4 * 4);
    flat.routeDispatch({one}, {rows, out, 4});
    flat.combine({single, sums, 4});
    flat.routeDispatch({two}, {rows, out, 4});
    expectError(moeInvalidArgument, "args.rows has 4 elements, must have [outRows][hidden] = [2][4]", [&] {
      flat.combine({single, sums, 4});
    });
    slots.routeDispatch({one}, {rows, out, 4});
    expectError(moeInvalidArgument, "args.rows has 4 elements, must have [outRows][hidden] = [4][4]", [&] {
      slots.combine({single, sums, 4});
    });
    slots.setTokensBound(1);
    expectError(moeInvalidArgument, "= [4][4]", [&] { slots.combine({single, sums, 4}); });
    slots.routeDispatch({one}, {rows, out, 4});
    slots.combine({single, sums, 4});
    slots.setTokensBound(0);
    slots.routeDispatch({none}, {rows, out, 4});
    slots.combine({single, sums, 4});  // nothing came, so nothing is read
    EXPECT_EQ(sums[0], 0);
  });
}

TEST(CppOwner, EmptyWeightsAreNone) {
  cppWorld(1, cppConfig(), [](Communicator& comm, int) {
    Handle handle(comm, HandleConfig(1, 1, moeLayoutExpertMajor));
    const std::vector<std::int32_t> topk = {0};
    const std::vector<float> fives = {5}, row(4, 1.0f);
    std::vector<float> arrived(4), sums(4);
    moecomm::CombineArgs combine(arrived, sums, 4);
    combine.weights = moeWeightsApply;
    handle.routeDispatch({topk, moecomm::Span(fives).first(0)}, {row, arrived, 4});
    handle.combine(combine);
    EXPECT_EQ(sums[0], 1);
    handle.routeDispatch({topk, fives}, {row, arrived, 4});
    handle.combine(combine);
    EXPECT_EQ(sums[0], 5);
  });
}

}  // namespace
}  // namespace moe::test
