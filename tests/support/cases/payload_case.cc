#include "support/cases/payload_case.h"

#include <algorithm>
#include <climits>
#include <cstring>
#include <numeric>

namespace moe::test {
namespace {

// The bytes of an output, which begins at a multiple of 16.
std::int64_t areaOf(const WordsOutput& output) {
  return roundUp(static_cast<std::int64_t>(output.bytes()), 16);
}

}  // namespace

int PayloadCase::words() const {
  return std::accumulate(forms.begin(), forms.end(), 0,
                         [](int sum, const WordsForm& form) { return sum + form.words; });
}

PayloadArrays::PayloadArrays(const PayloadCase& payloads, const RouteConfig& route, const std::vector<int>& experts,
                             std::int64_t rows, std::int64_t capacity)
    : columns_(payloads.columns) {
  int first = 0;
  for (const WordsForm& form : payloads.forms) {
    arrays_.push_back({form, first, WordsOutput(form, route, experts, rows, capacity), {}, {}, nullptr, 0});
    first += form.words;
  }
}

std::int64_t PayloadArrays::bytes() const {
  std::int64_t sum = 0;
  for (const Array& array : arrays_) sum += areaOf(array.output);
  return sum;
}

void PayloadArrays::place(std::uint8_t* area, std::uint64_t offset) {
  std::int64_t before = 0;
  for (Array& array : arrays_) {
    array.own = GuardedBytes(area != nullptr ? 0 : array.output.bytes());
    array.at = area != nullptr ? area + before : array.own.data();
    array.offset = area != nullptr ? offset + static_cast<std::uint64_t>(before) : 0;
    before += areaOf(array.output);
  }
}

PayloadArgs PayloadArrays::args(const std::vector<std::vector<std::uint32_t>>& tokens) {
  PayloadArgs args{};
  args.count = static_cast<int>(arrays_.size());
  args.byRows = columns_ ? 1 : 0;
  for (PayloadWords& unused : args.payload) unused.first = unused.end = INT_MAX;
  const auto count = static_cast<std::int64_t>(tokens.size());
  for (std::size_t i = 0; i < arrays_.size(); ++i) {
    Array& array = arrays_[i];
    const int words = array.form.words;
    const std::int64_t rowStride = columns_ ? 1 : words + 1, wordStride = columns_ ? count + 1 : 1;
    array.given = GuardedBytes(static_cast<std::size_t>(std::max(count * (words + 1), words * (count + 1)) * 4));
    for (std::int64_t t = 0; t < count; ++t) {
      for (int w = 0; w < words; ++w) {
        std::memcpy(array.given.data() + (t * rowStride + w * wordStride) * 4,
                    &tokens[static_cast<std::size_t>(t)][static_cast<std::size_t>(array.first + w)], 4);
      }
    }
    args.payload[i] = {count == 0 ? nullptr : reinterpret_cast<const std::uint32_t*>(array.given.data()),
                       static_cast<std::int32_t>(rowStride),
                       static_cast<std::int32_t>(wordStride),
                       array.output.bytes() == 0 ? nullptr : reinterpret_cast<std::uint32_t*>(array.at),
                       array.offset,
                       array.output.grid(),
                       array.first,
                       array.first + words};
  }
  return args;
}

void PayloadArrays::expect(std::int64_t layoutRow, const std::vector<std::uint32_t>& words) {
  for (Array& array : arrays_) {
    const auto first = words.begin() + array.first;
    array.output.expect(layoutRow, std::vector<std::uint32_t>(first, first + array.form.words));
  }
}

void PayloadArrays::expectPads(const Arrivals& arrivals, bool all) {
  for (Array& array : arrays_) array.output.expectPads(arrivals, all);
}

void PayloadArrays::expectZeros(std::int64_t layoutRow) {
  for (Array& array : arrays_) {
    if (array.form.layout == moeScales128x4) continue;
    array.output.expect(layoutRow, std::vector<std::uint32_t>(static_cast<std::size_t>(array.form.words), 0));
  }
}

bool PayloadArrays::inBlocks() const {
  return std::any_of(arrays_.begin(), arrays_.end(),
                     [](const Array& array) { return array.form.layout == moeScales128x4; });
}

std::vector<int> PayloadArrays::blockOffsets() const {
  for (const Array& array : arrays_) {
    if (array.form.layout == moeScales128x4) return array.output.blockOffsets();
  }
  return {};
}

bool PayloadArrays::isRight() const {
  return std::all_of(arrays_.begin(), arrays_.end(), [](const Array& array) { return array.output.isRight(array.at); });
}

bool PayloadArrays::guardsAreIntact() const {
  return std::all_of(arrays_.begin(), arrays_.end(),
                     [](const Array& array) { return array.own.guardsAreIntact() && array.given.guardsAreIntact(); });
}

PayloadCase drawPayloads(int sideBytes, std::uint64_t seed) {
  Rng rng(mix(seed, 0x9a71));
  PayloadCase payloads;
  if (sideBytes == 0 || rng.coin()) return payloads;
  payloads.columns = rng.coin();
  int left = sideBytes / 4 - rng.below(4);  // the last piece need not be full
  while (left > 0) {
    const bool last = payloads.forms.size() + 1 == kPayloadsMax;
    const int words = last ? left : rng.between(1, left);
    payloads.forms.push_back({words, words * 4, rng.below(3), rng.coin() ? 0 : rng.between(1, 3)});
    left -= words;
  }
  return payloads;
}

void keepSmall(PayloadCase& payloads, const ReferenceRoute& route, std::int64_t spare, std::size_t bytes) {
  const bool large = std::any_of(route.arrivals.begin(), route.arrivals.end(), [&](const Arrivals& arrivals) {
    const std::int64_t rows = arrivals.layoutRows + spare;
    const PayloadArrays arrays(payloads, route.config, arrivals.expertOffsets, rows, rows);
    return arrays.bytes() > static_cast<std::int64_t>(bytes);
  });
  if (!large) return;
  for (WordsForm& form : payloads.forms) {
    form.layout = moeScalesRowMajor;
    form.pad = 0;
  }
}

}  // namespace moe::test
