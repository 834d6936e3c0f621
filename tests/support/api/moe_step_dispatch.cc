// Checks the results of a dispatch of moe_step.h. With arrival words, where the host can read the rows, it checks an
// expert's rows the moment its word has come. It checks all words at the end.
#include <algorithm>
#include <cstring>

#include "support/api/moe_step.h"
#include "support/reference/cast_reference.h"

namespace moe::test {

CastCase MoeStep::castCase() const {
  CastCase cast;
  cast.type = case_.cast;
  cast.exact = case_.exact;
  cast.rowType = case_.rowType;
  cast.elements = case_.hidden;
  cast.scales = case_.scales;
  cast.scalesInput = case_.scalesInput;
  cast.scalesAll = case_.scalesAll;
  cast.weighsInput = case_.weighsInput;
  return cast;
}

// The number of blocks, for the most experts that a rank has.
std::int64_t MoeStep::scaleBytesMax() const {
  const RouteConfig route{context_.nranks, case_.experts,  case_.topk, static_cast<Layout>(case_.layout),
                          case_.tokensMax, case_.alignment};
  const int local = (case_.experts + context_.nranks - 1) / context_.nranks;
  const std::vector<int> offsets(static_cast<std::size_t>(local) + 1, 0);
  return static_cast<std::int64_t>(WordsOutput(castCase().form(), route, offsets, rowsMax_, rowsMax_).bytes());
}

void MoeStep::checkCast() {
  WordsOutput scales(castCase().form(), reference_->config, arrivals().expertOffsets, rowsMax_, rowsMax_);
  scales.expectPads(arrivals(), (case_.padding & moePadRows) != 0);
  const auto out = context_.arena.get(out_, static_cast<std::size_t>(layoutRows() * outRowBytes()));
  const auto check = [&](const ArrivedToken& arrived, std::int64_t at) {
    const auto row = inputRow(arrived.source, arrived.token);
    const auto expected = referenceCast(castCase().ruleOf(arrived), case_.rowType, row.data(), case_.hidden);
    scales.expect(at, expected.scales);
    EXPECT_EQ(std::memcmp(out.data() + at * outRowBytes(), expected.codes.data(), expected.codes.size()), 0)
        << "rank " << context_.rank << " row " << at << "; " << case_.name() << " iteration " << iteration_;
  };
  forEachLayoutRow(check);
  if ((case_.padding & moePadRows) != 0 && case_.scales != moeScales128x4) {
    for (const std::int64_t row : emptyRows())
      scales.expect(row, std::vector<std::uint32_t>(static_cast<std::size_t>(castCase().words()), 0));
  }
  EXPECT_TRUE(scales.isRight(context_.arena.get(outScales_, scales.bytes()).data())) << case_.name();
  if (case_.scales != moeScales128x4 || case_.layout != moeLayoutExpertMajor) return;
  const std::vector<int> blocks = scales.blockOffsets();
  EXPECT_EQ(context_.arena.get(outBlocks_, blocks.size()), blocks) << case_.name();
}

void MoeStep::checkDispatch() {
  if (case_.cast != moeCastNone) {
    checkCast();
  } else {
    checkRows();
  }
  checkPayloads();
  checkArrays();
  checkPadding();
  checkCounts();
  checkArrivals();
  if (!case_.describes) return;
  checkDescribed();
}

void MoeStep::checkRows() {
  Arena& arena = context_.arena;
  const auto out = arena.get(out_, static_cast<std::size_t>(layoutRows() * rowBytes()));
  const auto outSide = arena.get(outSide_, static_cast<std::size_t>(layoutRows() * case_.sideBytes));
  const auto check = [&](const ArrivedToken& arrived, std::int64_t at) {
    const auto expected = inputRow(arrived.source, arrived.token);
    EXPECT_EQ(std::memcmp(out.data() + at * rowBytes(), expected.data(), expected.size()), 0)
        << "rank " << context_.rank << " row " << at << " should be token " << arrived.token << " of rank "
        << arrived.source << "; " << case_.name() << " iteration " << iteration_;
    for (int i = 0; i < case_.sideBytes; ++i) {
      ASSERT_EQ(outSide[static_cast<std::size_t>(at * case_.sideBytes + i)],
                static_cast<std::uint8_t>(arrived.source * 31 + arrived.token * 7 + i + iteration_))
          << case_.name();
    }
  };
  forEachLayoutRow(check);
}

std::vector<std::int64_t> MoeStep::outIds(std::size_t count) const {
  if (case_.wideIndex) return context_.arena.get(static_cast<const std::int64_t*>(outIds_), count);
  const auto narrow = context_.arena.get(static_cast<const std::int32_t*>(outIds_), count);
  return {narrow.begin(), narrow.end()};
}

void MoeStep::checkArrays() {
  Arena& arena = context_.arena;
  const auto rows = static_cast<std::size_t>(layoutRows());
  const auto topk = static_cast<std::size_t>(case_.topk);
  const auto sources = arena.get(outSource_, rows);
  const auto weights = arena.get(outWeights_, rows * topk);
  const std::vector<std::int64_t> ids = outIds(rows * topk);
  for (const ArrivedToken& arrived : arrivals().tokens) {
    const int source = arrived.source * bound() + arrived.token;
    if (hasRowPerExpert(static_cast<Layout>(case_.layout))) {
      for (const ArrivedEntry& entry : arrived.entries) {
        EXPECT_EQ(sources[static_cast<std::size_t>(entry.row)], source) << case_.name();
        EXPECT_EQ(weights[static_cast<std::size_t>(entry.row)], entry.weight) << case_.name();
      }
      continue;
    }
    EXPECT_EQ(sources[static_cast<std::size_t>(arrived.row)], source) << case_.name();
    std::vector<std::int64_t> expectedIds(topk, case_.invalidId);
    const int first = case_.idKind == moeIdsGlobal ? firstGlobal() : 0;
    std::vector<float> expectedWeights(topk, 0.0f);
    for (const ArrivedEntry& entry : arrived.entries) {
      expectedIds[static_cast<std::size_t>(entry.topk)] = first + entry.localExpert;
      expectedWeights[static_cast<std::size_t>(entry.topk)] = entry.weight;
    }
    for (std::size_t k = 0; k < topk; ++k) {
      EXPECT_EQ(ids[static_cast<std::size_t>(arrived.row) * topk + k], expectedIds[k]) << case_.name();
      EXPECT_EQ(weights[static_cast<std::size_t>(arrived.row) * topk + k], expectedWeights[k]) << case_.name();
    }
  }
  if (case_.layout != moeLayoutExpertMajor) return;
  EXPECT_EQ(arena.get(outOffsets_, arrivals().expertOffsets.size()), arrivals().expertOffsets) << case_.name();
}

// The output rows for which no row arrives: in layouts of a fixed size the unused rows, else the rows up to the end.
std::vector<std::int64_t> MoeStep::emptyRows() const {
  const bool open = case_.layout == moeLayoutFlat || case_.layout == moeLayoutExpertMajor;
  std::vector<bool> used(static_cast<std::size_t>(open ? rowsMax_ : layoutRows()), false);
  forEachLayoutRow([&](const ArrivedToken&, std::int64_t row) { used[static_cast<std::size_t>(row)] = true; });
  std::vector<std::int64_t> empty;
  for (std::size_t row = 0; row < used.size(); ++row) {
    if (!used[row]) empty.push_back(static_cast<std::int64_t>(row));
  }
  return empty;
}

void MoeStep::checkPadding() {
  Arena& arena = context_.arena;
  const bool perExpert = hasRowPerExpert(static_cast<Layout>(case_.layout));
  const auto count = static_cast<std::size_t>(rowsMax_), each = static_cast<std::size_t>(perExpert ? 1 : case_.topk);
  const auto outBytes = static_cast<std::size_t>(outRowBytes());
  if ((case_.padding & moePadIndices) != 0) {
    const auto sources = arena.get(outSource_, count);
    const auto weights = arena.get(outWeights_, count * each);
    const std::vector<std::int64_t> ids = outIds(perExpert ? 0 : count * each);
    for (const std::int64_t row : emptyRows()) {
      const auto at = static_cast<std::size_t>(row);
      EXPECT_EQ(sources[at], -1) << "row " << row << "; " << case_.name();
      for (std::size_t i = at * each; i < (at + 1) * each; ++i) {
        EXPECT_EQ(weights[i], 0.0f) << "row " << row << "; " << case_.name();
        EXPECT_EQ(perExpert ? case_.invalidId : ids[i], case_.invalidId) << "row " << row << "; " << case_.name();
      }
    }
  }
  const auto rows = arena.get(out_, count * outBytes);
  const auto side = arena.get(outSide_, count * static_cast<std::size_t>(case_.sideBytes));
  const auto areAll = [](const std::vector<std::uint8_t>& bytes, std::int64_t row, std::size_t size,
                         std::uint8_t value) {
    const auto begin = bytes.begin() + row * static_cast<std::int64_t>(size);
    return std::all_of(begin, begin + static_cast<std::int64_t>(size),
                       [=](std::uint8_t byte) { return byte == value; });
  };
  for (const std::int64_t row : emptyRows()) {
    if ((case_.padding & moePadRows) == 0) break;
    EXPECT_TRUE(areAll(rows, row, outBytes, 0)) << "row " << row << " is not zero; " << case_.name();
    EXPECT_TRUE(areAll(side, row, static_cast<std::size_t>(case_.sideBytes), 0))
        << "side " << row << "; " << case_.name();
  }
}

void MoeStep::checkCounts() {
  moeCounts_t counts = MOE_COUNTS_INITIALIZER;
  MOE_ASSERT_OK(moeHandleGetCounts(handle_, &counts), context_);
  EXPECT_EQ(counts.rows, static_cast<int>(arrivals().tokens.size())) << case_.name();
  EXPECT_EQ(counts.layoutRows, layoutRows()) << case_.name();
  EXPECT_EQ(counts.firstExpert, firstGlobal()) << case_.name();
  const Arrivals& wanted = reference_->wanted[static_cast<std::size_t>(context_.rank)];
  EXPECT_EQ(counts.rowsWanted, static_cast<int>(wanted.tokens.size())) << case_.name();
  EXPECT_EQ(counts.rowsOfAllExperts != nullptr, case_.expertCounts);
  for (int e = 0; e < case_.experts && case_.expertCounts; ++e) {
    const int rank = rankOfExpert(reference_->config, e), local = e - firstExpert(reference_->config, rank);
    EXPECT_EQ(counts.rowsOfAllExperts[e],
              reference_->arrivals[static_cast<std::size_t>(rank)].rowsPerExpert[static_cast<std::size_t>(local)])
        << case_.name();
  }
  for (int r = 0; r < context_.nranks; ++r)
    EXPECT_EQ(counts.rowsPerRank[r], arrivals().rowsPerRank[static_cast<std::size_t>(r)]);
  for (int e = 0; e < counts.localExperts; ++e) {
    EXPECT_EQ(counts.rowsPerExpert[e], arrivals().rowsPerExpert[static_cast<std::size_t>(e)]) << case_.name();
    EXPECT_EQ(counts.rowsWantedPerExpert[e], wanted.rowsPerExpert[static_cast<std::size_t>(e)]) << case_.name();
  }
}

Watch MoeStep::watchArrivals() {
  moeCommInfo_t info = MOE_COMM_INFO_INITIALIZER;
  MOE_EXPECT_OK(moeCommGetInfo(context_.comm, &info), context_);
  if (!case_.arrivals || info.backend != moeBackendHost) return {};
  moeArrivals_t arrivals = MOE_ARRIVALS_INITIALIZER;
  MOE_EXPECT_OK(moeHandleGetArrivals(handle_, &arrivals), context_);
  return {arrivals.words, expertCount(reference_->config, context_.rank), dispatches_,
          [this](int expert) { checkExpert(expert); }};
}

void MoeStep::checkExpert(int expert) const {
  for (const ArrivedToken& token : arrivals().tokens) {
    for (const ArrivedEntry& entry : token.entries) {
      if (entry.localExpert != expert || case_.cast != moeCastNone) continue;
      const auto expected = inputRow(token.source, token.token);
      EXPECT_EQ(std::memcmp(out_ + entry.row * rowBytes(), expected.data(), expected.size()), 0)
          << "rank " << context_.rank << ": the word of expert " << expert << " has come, but not row " << entry.row
          << "; " << case_.name() << " iteration " << iteration_;
    }
  }
}

void MoeStep::checkArrivals() {
  if (!case_.arrivals) return;
  moeArrivals_t arrivals = MOE_ARRIVALS_INITIALIZER;
  MOE_EXPECT_OK(moeHandleGetArrivals(handle_, &arrivals), context_);
  EXPECT_EQ(context_.arena.get(arrivals.failed, 1)[0], 0u);
  for (const std::uint64_t word :
       context_.arena.get(arrivals.words, static_cast<std::size_t>(expertCount(reference_->config, context_.rank)))) {
    EXPECT_EQ(word >> MOE_ARRIVAL_SHIFT, dispatches_) << "rank " << context_.rank << "; " << case_.name();
  }
}

}  // namespace moe::test
