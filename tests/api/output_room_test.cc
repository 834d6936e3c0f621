// Outputs of a dispatch with one row too few, just enough and one too many: every optional output is asked for, lies
// between guard zones, and has room for outRowsMax rows exactly.
#include <algorithm>
#include <array>

#include "support/api/refusal_calls.h"
#include "support/base/index.h"
#include "support/base/sanitizers.h"

namespace moe::test {
namespace {

constexpr int kRanks = 2, kWidth = 128, kGuard = 512, kUntouched = static_cast<int>(0xA5A5A5A5);
constexpr std::array<int, kRanks> kTokensOf = {8, 5};

// The data that travel beside rows.
enum class Beside { side, scales, blocks, payloads };

struct RoomCase {
  int mode, layout;
  Beside beside;
  bool window;  // outputs are in window memory
};

// One dispatch: rank 1 has room for `extra` rows more than arrive, rank 0 for one more.
struct RoomCall {
  int extra;
  int padding;
  bool routes, split;
  bool differs = false;  // rank 1 passes rows of another size
};

// Memory between guard zones.
class Guarded {
 public:
  Guarded(RankContext& context, std::int64_t bytes, bool window)
      : context_(context), bytes_(static_cast<std::size_t>(bytes)), window_(window) {
    const std::size_t all = bytes_ + 2 * kGuard;
    void* memory = nullptr;
    if (window) {
      MOE_EXPECT_OK(moeMemAlloc(context.comm, all, &memory), context);
      const std::vector<std::uint8_t> poison(all, 0xA5);
      context.arena.upload(memory, poison.data(), all);
    } else {
      memory = context.arena.take(all);
    }
    begin_ = static_cast<std::uint8_t*>(memory);
  }
  ~Guarded() {
    if (!window_) return;
    MOE_EXPECT_OK(moeMemFree(context_.comm, begin_), context_);
  }
  Guarded(const Guarded&) = delete;
  Guarded& operator=(const Guarded&) = delete;

  template <class T>
  T* at() const {
    return reinterpret_cast<T*>(begin_ + kGuard);
  }
  template <class T>
  std::vector<T> values() const {
    return context_.arena.get(at<T>(), bytes_ / sizeof(T));
  }
  void expectGuards(const char* name) const {
    const auto all = context_.arena.get(begin_, bytes_ + 2 * kGuard);
    const auto intact = [&](std::size_t from) {
      return std::all_of(all.begin() + static_cast<std::ptrdiff_t>(from),
                         all.begin() + static_cast<std::ptrdiff_t>(from + kGuard),
                         [](std::uint8_t byte) { return byte == 0xA5; });
    };
    EXPECT_TRUE(intact(0)) << "before " << name;
    EXPECT_TRUE(intact(kGuard + bytes_)) << "behind " << name;
  }
  // The first `filled` of its items are `value`, the others untouched.
  template <class T>
  void expectFilled(const char* name, std::int64_t filled, T value) const {
    T untouched;
    std::memset(&untouched, 0xA5, sizeof untouched);
    const std::vector<T> all = values<T>();
    for (std::size_t i = 0; i < all.size(); ++i) {
      ASSERT_EQ(all[i], static_cast<std::int64_t>(i) < filled ? value : untouched) << name << "[" << i << "]";
    }
  }

 private:
  RankContext& context_;
  std::size_t bytes_;
  bool window_;
  std::uint8_t* begin_;
};

// A rank with a handle. Each token goes to one expert of each rank, so all tokens come to all ranks.
class RoomyRank {
 public:
  RoomyRank(RankContext& context, const RoomCase& c) : context_(context), case_(c) {
    moeHandleConfig_t config = handleOf(c.mode, c.layout);
    config.statistics = 1;
    MOE_EXPECT_OK(moeHandleCreate(&handle_, context.comm, &config), context);
    std::vector<std::int32_t> ids;
    std::vector<float> rows, side;
    for (int t = 0; t < tokens(); ++t) {
      ids.insert(ids.end(), {t % 2, 2 + t % 2});
      rows.insert(rows.end(), kWidth, mark(context.rank, t));
      side.insert(side.end(), kSideWords, mark(context.rank, t));
    }
    ids_ = context.arena.put<std::int32_t>(ids);
    rows_ = context.arena.put<float>(rows);
    side_ = context.arena.put<float>(side);
    made_ = context.arena.take(std::size_t{kRowsMax} * kWidth * 4);
    context.meet();
  }

  void check(const RoomCall& call) {
    layoutRows_ = perExpertPadded() ? 2 * kRanks * kMost : case_.layout == moeLayoutRankMajor ? kRanks * kMost : kCome;
    room_ = layoutRows_ + (context_.rank == 1 ? call.extra : 1);
    const bool little = call.extra < 0;
    faulty_ = call.differs || (little && (case_.mode == moeModeHt || context_.rank == 1));
    make(call);
    const std::vector<std::int64_t> before = counted();
    run(call);
    checkStatus(call);
    for (const auto& [name, output] : outputs()) output->expectGuards(name);
    const std::vector<std::int64_t> after = counted();
    std::int64_t grown = 0;
    for (std::size_t i = 0; i < after.size(); ++i) grown += after[i] - before[i];
    EXPECT_EQ(grown, faulty_ ? 0 : 2 * kCome) << "counters of rows";
    const auto rowsCounted = cumulative_->values<std::int32_t>();
    EXPECT_EQ(rowsCounted[0] + rowsCounted[1], faulty_ ? 0 : kCome);
    if (faulty_) {
      checkNothing(call);
    } else {
      checkRows(call);
    }
    combine();
  }

 private:
  static constexpr int kMost = 8, kCome = 13, kSideWords = 8;
  static float mark(int rank, int token) { return static_cast<float>(rank * 100 + token + 1); }
  int tokens() const { return kTokensOf[at(context_.rank)]; }
  bool perExpert() const { return hasRowPerExpert(static_cast<Layout>(case_.layout)); }
  bool perExpertPadded() const { return case_.layout == moeLayoutExpertMajorPadded; }
  bool open() const { return case_.layout == moeLayoutFlat || case_.layout == moeLayoutExpertMajor; }
  bool casts() const { return case_.beside == Beside::scales || case_.beside == Beside::blocks; }
  int rowBytes() const { return casts() ? kWidth : kWidth * 4; }

  // Bytes of scales, as moeCast_t.scaleLayout has them: a word for a row.
  std::int64_t scaleBytes() const {
    if (case_.beside == Beside::scales) return room_ * 4;
    const auto up = [](std::int64_t rows) { return (rows + 127) / 128; };
    const std::int64_t blocks = case_.layout == moeLayoutFlat          ? up(room_)
                                : case_.layout == moeLayoutRankMajor   ? kRanks * up(kMost)
                                : case_.layout == moeLayoutExpertMajor ? (room_ + 2 * (128 - 1)) / 128
                                                                       : 2 * up(kRanks * kMost);
    return blocks * 512;
  }

  void make(const RoomCall& call) {
    const auto take = [&](std::int64_t bytes, bool window = false) {
      return std::make_unique<Guarded>(context_, bytes, window);
    };
    args_ = {};
    args_.rows = rows_;
    args_.rowType = moeRowFp32;
    args_.hidden = kWidth;
    if (call.differs && context_.rank == 1) args_.hidden = kWidth / 2;
    args_.flags = call.split ? moeSendOnly : 0;
    args_.padding = call.padding;
    args_.outRowsMax = room_;
    out_ = take(room_ * rowBytes(), case_.window);
    args_.outRows = out_->at<void>();
    sources_ = take(room_ * 4);
    args_.describe.outSourceIndex = sources_->at<std::int32_t>();
    weights_ = take(room_ * 4 * (perExpert() ? 1 : kTopk));
    args_.describe.outTopkWeights = weights_->at<float>();
    topkIds_ = take(perExpert() ? 0 : room_ * 4 * kTopk);
    experts_ = take(perExpert() ? room_ * 4 : 0);
    ranges_ = take(perExpert() ? 2 * kRanks * 8 : 0);
    offsets_ = take(case_.layout == moeLayoutExpertMajor ? 12 : 0);
    blockOffsets_ = take(12);
    cumulative_ = take(8);
    context_.arena.upload(cumulative_->at<void>(), std::array<std::int32_t, 2>{}.data(), 8);
    args_.describe.cumulativeRows = cumulative_->at<std::int32_t>();
    if (perExpert()) {
      args_.describe.outRowExperts = experts_->at<std::int32_t>();
      args_.describe.outLayoutRange = ranges_->at<std::int64_t>();
    } else {
      args_.describe.outTopkIdx = topkIds_->at<void>();
    }
    if (case_.layout == moeLayoutExpertMajor) args_.describe.outExpertOffsets = offsets_->at<std::int32_t>();
    makeBeside();
  }
  void makeBeside() {
    const bool side = case_.beside == Beside::side;
    const auto take = [&](std::int64_t bytes) { return std::make_unique<Guarded>(context_, bytes, case_.window); };
    beside_ = take(casts() ? scaleBytes() : room_ * (side ? kSideWords * 4 : 8)),
    more_ = take(side || casts() ? 0 : room_ * 24);
    if (side) {
      payloads_[0] = MOE_PAYLOAD_INITIALIZER;
      payloads_[0].outLayout = moePayloadArray;
      payloads_[0].bytes = kSideWords * 4;
      payloads_[0].in = side_;
      payloads_[0].out = beside_->at<void>();
      args_.payloads = payloads_.data();
      args_.payloadCount = 1;
    } else if (casts()) {
      args_.cast.type = case_.beside == Beside::scales ? moeCastFp8 : moeCastMxfp8;
      args_.cast.outScales = beside_->at<void>();
      args_.cast.scaleLayout = case_.beside == Beside::scales ? moeScalesRowMajor : moeScales128x4;
      if (case_.beside == Beside::blocks && case_.layout == moeLayoutExpertMajor)
        args_.describe.outBlockOffsets = blockOffsets_->at<std::int32_t>();
    } else {
      payloads_.fill(MOE_PAYLOAD_INITIALIZER);
      payloads_[0].bytes = 8;
      payloads_[0].in = side_;
      payloads_[0].inRowStride = kSideWords * 4;
      payloads_[1].bytes = 24;
      payloads_[1].in = side_ + 2;
      payloads_[1].inRowStride = kSideWords * 4;
      payloads_[0].out = beside_->at<void>();
      payloads_[1].out = more_->at<void>();
      args_.payloads = payloads_.data();
      args_.payloadCount = 2;
    }
  }
  // The step goes on whatever the dispatch did.
  void combine() {
    moeCombineArgs_t args = MOE_COMBINE_ARGS_INITIALIZER;
    args.rows = made_;
    args.rowType = moeRowFp32;
    args.hidden = kWidth;
    const Guarded sums(context_, std::int64_t{tokens()} * kWidth * 4, false);
    args.out = sums.at<void>();
    MOE_EXPECT_OK(moeCombine(handle_, &args, context_.stream()), context_);
    sums.expectGuards("sums");
    context_.meet();
  }

  std::vector<std::pair<const char*, const Guarded*>> outputs() const {
    return {{"outRows", out_.get()},
            {"outSourceIndex", sources_.get()},
            {"outTopkWeights", weights_.get()},
            {"outTopkIdx", topkIds_.get()},
            {"outRowExperts", experts_.get()},
            {"outLayoutRange", ranges_.get()},
            {"outExpertOffsets", offsets_.get()},
            {"outBlockOffsets", blockOffsets_.get()},
            {"cumulativeRows", cumulative_.get()},
            {"outSide, outScales or a payload", beside_.get()},
            {"another payload", more_.get()}};
  }

  void run(const RoomCall& call) {
    context_.arena.synchronize();
    context_.meet();
    if (call.routes) {
      MOE_EXPECT_OK(moeRouteDispatch(handle_, ids_, nullptr, tokens(), args_.linked(), context_.stream()), context_);
    } else {
      MOE_EXPECT_OK(moeRoute(handle_, ids_, nullptr, tokens(), context_.stream()), context_);
      MOE_EXPECT_OK(moeDispatch(handle_, args_.linked(), context_.stream()), context_);
    }
    if (call.split) {
      MOE_EXPECT_OK(moeComplete(handle_, context_.stream()), context_);
    }
    context_.arena.synchronize();
  }

  void checkStatus(const RoomCall& call) const {
    moeHandleStatus_t status = MOE_HANDLE_STATUS_INITIALIZER;
    MOE_EXPECT_OK(moeHandleGetStatus(handle_, &status), context_);
    EXPECT_EQ(status.result, !faulty_ ? moeSuccess : call.differs ? moeInvalidUsage : moeInvalidArgument);
    const std::string room = std::to_string(layoutRows_ + call.extra), come = std::to_string(layoutRows_);
    if (faulty_ && !call.differs) {
      EXPECT_TRUE(says(status.sentence, "the output of rank 1 holds " + room + " rows but " + come));
    }
  }

  std::vector<std::int64_t> counted() const {
    moeStatistics_t statistics = MOE_STATISTICS_INITIALIZER;
    MOE_EXPECT_OK(moeHandleGetStatistics(handle_, &statistics), context_);
    std::vector<std::int64_t> all = context_.arena.get(statistics.rowsPerExpert, 2);
    for (const std::int64_t rows : context_.arena.get(statistics.rowsPerRank, kRanks)) all.push_back(rows);
    return all;
  }

  // Nothing was delivered: no row, padding as asked, zeros in offsets and ranges.
  void checkNothing(const RoomCall& call) const {
    const std::int64_t padded = open() ? room_ : std::min(room_, layoutRows_);
    const std::int64_t indices = (call.padding & moePadIndices) != 0 ? padded : 0;
    experts_->expectFilled("outRowExperts", indices, -1);
    ranges_->expectFilled("outLayoutRange", perExpert() ? 2 * kRanks : 0, std::int64_t{0});
    if (call.differs && case_.mode == moeModeLl) return;  // arrays that the dispatch itself stores may hold anything
    offsets_->expectFilled("outExpertOffsets", 3, 0);
    const bool blocks = args_.describe.outBlockOffsets != nullptr;
    blockOffsets_->expectFilled("outBlockOffsets", blocks ? 3 : 0, 0);
    sources_->expectFilled("outSourceIndex", indices, -1);
    weights_->expectFilled("outTopkWeights", indices * (perExpert() ? 1 : kTopk), 0.0f);
    topkIds_->expectFilled("outTopkIdx", indices * kTopk, -1);
    if (call.differs) return;  // rows of another size have other places
    const std::int64_t rows = (call.padding & moePadRows) != 0 ? padded : 0;
    out_->expectFilled("outRows", rows * rowBytes(), std::uint8_t{0});
    const std::int64_t each = case_.beside == Beside::side ? kSideWords * 4 : case_.beside == Beside::scales ? 4 : 8;
    const std::int64_t bytes = case_.beside == Beside::blocks ? (rows > 0 ? scaleBytes() : 0) : rows * each;
    beside_->expectFilled("what lies beside the rows", bytes, std::uint8_t{0});
    more_->expectFilled("another payload", rows * 24, std::uint8_t{0});
  }

  // Each row, and everything that describes it, belongs to the token that outSourceIndex names. All rows have come.
  void checkRows(const RoomCall& call) const {
    const auto sources = sources_->values<std::int32_t>();
    int came = 0;
    for (std::int64_t row = 0; row < room_; ++row) {
      const int source = sources[at(row)];
      if (source != kUntouched && source != -1) {
        ++came;
        checkRow(row, source / kMost, source % kMost);
        continue;
      }
      const bool pads = (call.padding & moePadIndices) != 0 && (open() || row < layoutRows_);
      EXPECT_EQ(source, pads ? -1 : kUntouched) << "row " << row;
    }
    EXPECT_EQ(came, kCome);
    const std::vector<std::int64_t> ranges = {4, 4LL << 32 | 3, 4, 4LL << 32 | 2};
    EXPECT_EQ(ranges_->values<std::int64_t>(), perExpert() ? ranges : std::vector<std::int64_t>{});
    const bool expertMajor = case_.layout == moeLayoutExpertMajor;
    EXPECT_EQ(offsets_->values<std::int32_t>(), expertMajor ? std::vector<int>({0, 7, 13}) : std::vector<int>{});
  }
  // Token t of a rank goes to local expert t % 2 of this one, by entry `context_.rank` of its ids.
  void checkRow(std::int64_t row, int from, int token) const {
    SCOPED_TRACE("row " + std::to_string(row));
    ASSERT_TRUE(from >= 0 && from < kRanks && token < kTokensOf[at(from)]) << from << ":" << token;
    const auto same = [&](const Guarded& output, std::int64_t words) {
      const auto values = context_.arena.get(output.at<float>() + row * words, at(words));
      return std::all_of(values.begin(), values.end(), [&](float value) { return value == mark(from, token); });
    };
    if (!casts()) {
      EXPECT_TRUE(same(*out_, kWidth));
      EXPECT_TRUE(same(*beside_, case_.beside == Beside::side ? kSideWords : 2));
      EXPECT_TRUE(case_.beside == Beside::side || same(*more_, 6));
    }
    if (perExpert()) {
      EXPECT_EQ(context_.arena.get(experts_->at<std::int32_t>() + row, 1)[0], token % 2);
      EXPECT_EQ(context_.arena.get(weights_->at<float>() + row, 1)[0], 1.0f);
      return;
    }
    const auto ids = context_.arena.get(topkIds_->at<std::int32_t>() + row * kTopk, kTopk);
    const auto weights = context_.arena.get(weights_->at<float>() + row * kTopk, kTopk);
    for (int entry = 0; entry < kTopk; ++entry) {
      const bool here = entry == context_.rank;
      EXPECT_EQ(ids[at(entry)], here ? token % 2 : -1);
      EXPECT_EQ(weights[at(entry)], here ? 1.0f : 0.0f);
    }
  }

  RankContext& context_;
  const RoomCase case_;
  moeHandle_t handle_ = nullptr;
  const std::int32_t* ids_ = nullptr;
  const float *rows_ = nullptr, *side_ = nullptr;
  void* made_ = nullptr;  // rows of experts
  std::int64_t layoutRows_ = 0, room_ = 0;
  bool faulty_ = false;
  DispatchFields args_;
  std::array<moePayload_t, 2> payloads_{};
  std::unique_ptr<Guarded> out_, sources_, weights_, topkIds_, experts_, ranges_, offsets_, blockOffsets_, cumulative_,
      beside_, more_;
};

class OutputRoom : public OnBackend {
 protected:
  template <class Body>
  void inEachCase(Body body) {
    moeConfig_t wide = config();
    wide.sideBytesMax = 64;
    wide.rowBytesMax = 1024;
    for (int i = 0; i < 2 * 4 * 4 * 2; ++i) {
      const RoomCase c{i % 2 == 0 ? moeModeHt : moeModeLl, i / 2 % 4, static_cast<Beside>(i / 8 % 4), i / 32 != 0};
      if (c.window && c.mode == moeModeLl) continue;
      SCOPED_TRACE(std::string(c.mode == moeModeHt ? "HT" : "LL") + " layout " + std::to_string(c.layout) + " beside " +
                   std::to_string(static_cast<int>(c.beside)) + (c.window ? " in the window" : ""));
      world(kRanks, wide, [&](RankContext& context) { body(context, c); });
    }
  }
};

TEST_P(OutputRoom, IsNeverLeftByRowsOrByWhatDescribesThem) {
  inEachCase([](RankContext& context, const RoomCase& c) {
    RoomyRank rank(context, c);
    for (int i = 0; i < 3 * 3 * 2 * 2; ++i) {
      const RoomCall call{i % 3 - 1, std::array{0, int{moePadIndices}, moePadIndices | moePadRows}[at(i / 3 % 3)],
                          i / 9 % 2 != 0, i / 18 != 0};
      SCOPED_TRACE("rows more " + std::to_string(call.extra) + " padding " + std::to_string(call.padding) +
                   (call.routes ? " routes" : "") + (call.split ? " in two parts" : "") + " at rank " +
                   std::to_string(context.rank));
      rank.check(call);
    }
  });
}

// In LL, rows of different sizes may overlap in slots that nobody reads. ThreadSanitizer would report that as a race.
TEST_P(OutputRoom, IsDescribedAsEmptyWhenRanksDiffer) {
  inEachCase([](RankContext& context, const RoomCase& c) {
    if (c.beside != Beside::side || c.window || (MOE_TEST_TSAN && c.mode == moeModeLl)) return;
    RoomyRank rank(context, c);
    for (int i = 0; i < 2 * 2 * 2; ++i) {
      const RoomCall call{1, i % 2 == 0 ? 0 : moePadIndices, i / 2 % 2 != 0, i / 4 != 0, true};
      SCOPED_TRACE("padding " + std::to_string(call.padding) + (call.routes ? " routes" : "") +
                   (call.split ? " in two parts" : "") + " at rank " + std::to_string(context.rank));
      rank.check(call);
    }
  });
}

// One dispatch in twenty has too little room.
TEST_P(OutputRoom, IsRespectedInRandomPrograms) {
  inEachCase([](RankContext& context, const RoomCase& c) {
    RoomyRank rank(context, c);
    Rng rng(
        mix(95, static_cast<std::uint64_t>(c.mode * 64 + c.layout * 8 + static_cast<int>(c.beside) * 2 + c.window)));
    for (int i = 0; i < 60; ++i) {
      const int extra = rng.oneIn(20) ? -rng.between(1, 12) : rng.below(3);
      const RoomCall call{extra, rng.below(4), rng.coin(), rng.coin()};
      SCOPED_TRACE("step " + std::to_string(i) + ", rows more " + std::to_string(extra) + " at rank " +
                   std::to_string(context.rank));
      rank.check(call);
    }
  });
}

MOE_INSTANTIATE_BACKENDS(OutputRoom);

}  // namespace
}  // namespace moe::test
