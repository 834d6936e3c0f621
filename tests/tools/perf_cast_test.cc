// The checks of moe_perf must find what is wrong in a row that was cast, wherever its scales lie.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <vector>

#include "moecomm.h"
#include "perf/payload/work.h"
#include "support/reference/cast_reference.h"

namespace moe::test {
namespace {

using namespace moe::perf;

// A cast row of token 5 of rank 1, made by the reference. wrong() counts the elements and scales that the check finds
// wrong.
struct CastRow {
  explicit CastRow(Cast to) : kind(to) {
    std::vector<float> row(static_cast<std::size_t>(kHidden));
    for (int group = 0; group < kHidden / kGroup; ++group) {
      const GroupValues values = payload(payloadOf.key(1, 5), group);
      std::copy_n(values.value, kGroup, &row[static_cast<std::size_t>(group * kGroup)]);
    }
    cast =
        referenceCast({static_cast<int>(kind)}, moeRowFp32, reinterpret_cast<const std::uint8_t*>(row.data()), kHidden);
  }
  unsigned long long wrong() const { return wrong(0, cast.codes, {cast.scales.data(), INT64_MAX, 0, 0, 4}); }
  unsigned long long wrong(std::int64_t row, const std::vector<std::uint8_t>& codes, const ScaleAddress& scales) const {
    Findings findings{};
    const RowSpec spec{row, 1, 5, 0, 0};
    const VerifyCast check{payloadOf,
                           {Format::bf16, kHidden, 0},
                           kind,
                           &spec,
                           1,
                           codes.data(),
                           static_cast<std::int64_t>(cast.codes.size()),
                           scales,
                           &findings};
    check(0, 0, 1);
    return findings.wrongPayloads;
  }

  unsigned long long block() const { return static_cast<unsigned long long>(castBlockColumns(kind)); }
  // Makes the first scale of a word twice what it is.
  void spoil(std::uint32_t* word) const {
    *word += castScalesAreFloats(kind) ? 1U << 23 : kind == Cast::nvfp4 ? 8U : 1U;
  }

  static constexpr int kHidden = 640;
  Cast kind;
  std::uint32_t iteration = 3;
  PayloadOf payloadOf{99, &iteration};
  ReferenceCast cast;
};

TEST(PerfCastChecks, FindWhatIsWrongInARowThatWasCast) {
  for (const auto& [name, kind] : kCasts) {
    CastRow row(kind);
    const std::uint8_t bit = castPacksTwo(kind) ? 2 : 8;
    EXPECT_EQ(row.wrong(), 0U) << name;
    for (std::size_t byte = 0; byte < row.cast.codes.size(); byte += 37) {
      row.cast.codes[byte] ^= bit;
      EXPECT_EQ(row.wrong(), 1U) << byte << " of " << name;
      row.cast.codes[byte] ^= bit;
    }
    row.spoil(&row.cast.scales[1]);
    EXPECT_GT(row.wrong(), row.block() / 2);
    row.iteration += 1;
    EXPECT_GT(row.wrong(), 400U);
  }
}

// The row is row 170 of the second expert, which begins at row 200, or of the second group of 200 rows.
TEST(PerfCastChecks, FindScalesWhereBlocksHaveThem) {
  for (const auto& [name, kind] : kCasts) {
    if (castScalesAreFloats(kind)) continue;
    const CastRow row(kind);
    const std::size_t words = row.cast.scales.size(), blockBytes = words * 512;
    std::vector<std::uint8_t> codes(371 * row.cast.codes.size());
    std::copy(row.cast.codes.begin(), row.cast.codes.end(),
              codes.end() - static_cast<std::ptrdiff_t>(row.cast.codes.size()));
    std::vector<std::uint32_t> scales(6 * words * 128);
    const std::size_t first = (2 + 1) * words * 128 + 170 % 32 * 4 + 1;  // 170 is 42 in the group's second block
    for (std::size_t word = 0; word < words; ++word) scales[first + word * 128] = row.cast.scales[word];
    const auto stride = static_cast<std::int64_t>(blockBytes);
    const std::array<std::int32_t, 4> rows = {0, 200, 400, 400}, blocks = {0, 2, 4, 5};
    const ScaleAddress groups{scales.data(), 200, 2 * stride, stride, 512, true};
    const ScaleAddress experts{scales.data(), INT64_MAX, 0, stride, 512, true, rows.data(), blocks.data(), 3};
    EXPECT_EQ(row.wrong(370, codes, groups), 0U);
    EXPECT_EQ(row.wrong(370, codes, experts), 0U);
    row.spoil(&scales[first]);
    EXPECT_GT(row.wrong(370, codes, groups), row.block() / 2);
    EXPECT_GT(row.wrong(370, codes, experts), row.block() / 2);
  }
}

// The row is row 4 of group 2. Groups have 7 rows, whose scales lie word by word.
TEST(PerfCastChecks, FindScalesWhereATokenContiguousLayoutHasThem) {
  constexpr std::size_t kRows = 7, kRow = 2 * kRows + 4;
  for (const auto& [name, kind] : kCasts) {
    const CastRow row(kind);
    const std::size_t words = row.cast.scales.size();
    std::vector<std::uint8_t> codes((kRow + 1) * row.cast.codes.size());
    std::copy(row.cast.codes.begin(), row.cast.codes.end(),
              codes.end() - static_cast<std::ptrdiff_t>(row.cast.codes.size()));
    std::vector<std::uint32_t> scales(3 * words * kRows);
    for (std::size_t word = 0; word < words; ++word) {
      scales[(2 * words + word) * kRows + 4] = row.cast.scales[word];
    }
    const auto bytes = static_cast<std::int64_t>(kRows * sizeof(std::uint32_t));
    const ScaleAddress address{scales.data(), kRows, static_cast<std::int64_t>(words) * bytes, 4, bytes};
    EXPECT_EQ(row.wrong(kRow, codes, address), 0U);
    row.spoil(&scales[2 * words * kRows + 4]);
    EXPECT_GT(row.wrong(kRow, codes, address), row.block() / 2);
  }
}

}  // namespace
}  // namespace moe::test
