#include "support/reference/reference.h"

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <utility>

#include "support/base/index.h"

namespace moe::test {
namespace {

// The nearest number with `mantissa` bits after the leading one and exponents of at least `exponentMin`. Ties go to
// even.
double roundTo(double value, int mantissa, int exponentMin) {
  if (value == 0.0 || !std::isfinite(value)) return value;
  const int exponent = std::max(std::ilogb(value), exponentMin);
  return std::ldexp(std::nearbyint(std::ldexp(value, mantissa - exponent)), exponent - mantissa);
}

std::uint16_t encodeHalf(float value) {
  const auto sign = static_cast<std::uint16_t>(std::signbit(value) ? 0x8000 : 0);
  const double magnitude = std::fabs(roundTo(value, 10, -14));
  if (magnitude >= 65536.0) return static_cast<std::uint16_t>(sign | 0x7c00);
  if (magnitude < std::ldexp(1.0, -14)) return static_cast<std::uint16_t>(sign | int(std::ldexp(magnitude, 24)));
  const int exponent = std::ilogb(magnitude);
  const int fraction = static_cast<int>(std::ldexp(magnitude, 10 - exponent)) - 1024;
  return static_cast<std::uint16_t>(sign | (exponent + 15) << 10 | fraction);
}

float decodeHalf(std::uint16_t bits) {
  const int exponent = bits >> 10 & 31, fraction = bits & 1023;
  using Limits = std::numeric_limits<double>;
  const double magnitude = exponent == 31  ? (fraction == 0 ? Limits::infinity() : Limits::quiet_NaN())
                           : exponent == 0 ? std::ldexp(fraction, -24)
                                           : std::ldexp(1024 + fraction, exponent - 25);
  return static_cast<float>((bits & 0x8000) != 0 ? -magnitude : magnitude);
}

void placeEntries(const RouteConfig& config, int rank, Arrivals& arrivals) {
  const int experts = expertCount(config, rank);
  arrivals.rowsPerExpert.assign(at(experts), 0);
  for (const ArrivedToken& token : arrivals.tokens)
    for (const ArrivedEntry& entry : token.entries) ++arrivals.rowsPerExpert[at(entry.localExpert)];
  arrivals.expertOffsets.assign(1, 0);
  for (int rows : arrivals.rowsPerExpert) {
    while (rows % config.alignment != 0) ++rows;
    arrivals.expertOffsets.push_back(arrivals.expertOffsets.back() + rows);
  }
  std::vector<std::int64_t> next(at(experts));
  for (int e = 0; e < experts; ++e) {
    next[at(e)] = config.layout == Layout::expertMajor ? arrivals.expertOffsets[at(e)]
                                                       : std::int64_t{e} * config.nranks * config.tokensMax;
  }
  for (ArrivedToken& token : arrivals.tokens)
    for (ArrivedEntry& entry : token.entries) entry.row = next[at(entry.localExpert)]++;
}

std::int64_t countLayoutRows(const RouteConfig& config, int rank, const Arrivals& arrivals) {
  switch (config.layout) {
    case Layout::flat:
      return static_cast<std::int64_t>(arrivals.tokens.size());
    case Layout::expertMajor:
      return arrivals.expertOffsets.back();
    case Layout::expertMajorPadded:
      return std::int64_t{expertCount(config, rank)} * config.nranks * config.tokensMax;
    case Layout::rankMajor:
      return std::int64_t{config.nranks} * config.tokensMax;
  }
  return 0;
}

Arrivals arrivalsAt(const RouteConfig& config, const std::vector<RouteInput>& inputs, int rank) {
  Arrivals arrivals;
  for (int source = 0; source < config.nranks; ++source) {
    const RouteInput& input = inputs[at(source)];
    int fromSource = 0;
    for (int token = 0; token < input.tokens; ++token) {
      ArrivedToken arrived{source, token, 0, {}};
      for (int k = 0; k < config.topk; ++k) {
        const int expert = input.experts[at(token * config.topk + k)];
        if (expert < 0 || expert >= config.experts || rankOfExpert(config, expert) != rank) continue;
        arrived.entries.push_back(
            {k, expert - firstExpert(config, rank), input.weights[at(token * config.topk + k)], 0});
      }
      if (arrived.entries.empty()) continue;
      arrived.row = config.layout == Layout::rankMajor ? std::int64_t{source} * config.tokensMax + fromSource
                                                       : static_cast<std::int64_t>(arrivals.tokens.size());
      arrivals.tokens.push_back(std::move(arrived));
      ++fromSource;
    }
    arrivals.rowsPerRank.push_back(fromSource);
  }
  placeEntries(config, rank, arrivals);
  arrivals.layoutRows = countLayoutRows(config, rank, arrivals);
  return arrivals;
}

// Removes the entries at that rank of the tokens of `arrivals` beyond the budget, with entries that are merged into
// them.
void leaveOut(const RouteConfig& config, const Arrivals& arrivals, std::vector<RouteInput>& inputs) {
  for (std::size_t i = at(config.rowsBudget); i < arrivals.tokens.size(); ++i) {
    const ArrivedToken& token = arrivals.tokens[i];
    int* list = &inputs[at(token.source)].experts[at(token.token * config.topk)];
    for (const ArrivedEntry& entry : token.entries) {
      for (int k = 0; k < config.topk; ++k) {
        if (list[k] == -2 - entry.topk) list[k] = -1;
      }
      list[entry.topk] = -1;
    }
  }
}

}  // namespace

bool hasRowPerExpert(Layout layout) {
  return layout == Layout::expertMajor || layout == Layout::expertMajorPadded;
}
bool hasFixedRows(Layout layout) {
  return layout == Layout::expertMajorPadded || layout == Layout::rankMajor;
}

int expertCount(const RouteConfig& config, int rank) {
  return config.experts / config.nranks + (rank < config.experts % config.nranks ? 1 : 0);
}

int firstExpert(const RouteConfig& config, int rank) {
  int first = 0;
  for (int before = 0; before < rank; ++before) first += expertCount(config, before);
  return first;
}

int rankOfExpert(const RouteConfig& config, int expert) {
  int rank = 0;
  while (expert >= firstExpert(config, rank) + expertCount(config, rank)) ++rank;
  return rank;
}

ReferenceRoute makeReferenceRoute(const RouteConfig& config, std::vector<RouteInput> inputs) {
  ReferenceRoute route{config, std::move(inputs), {}, {}};
  for (int rank = 0; rank < config.nranks; ++rank) route.wanted.push_back(arrivalsAt(config, route.inputs, rank));
  if (config.rowsBudget > 0) {
    for (const Arrivals& wanted : route.wanted) leaveOut(config, wanted, route.inputs);
  }
  for (int rank = 0; rank < config.nranks; ++rank) route.arrivals.push_back(arrivalsAt(config, route.inputs, rank));
  return route;
}

float decodeElement(int rowType, const std::uint8_t* row, std::int64_t element) {
  if (rowType == kFp32) {
    float value;
    std::memcpy(&value, row + 4 * element, 4);
    return value;
  }
  std::uint16_t bits;
  std::memcpy(&bits, row + 2 * element, 2);
  return rowType == kFp16 ? decodeHalf(bits) : std::bit_cast<float>(std::uint32_t{bits} << 16);
}

void encodeElement(int rowType, float value, std::uint8_t* row, std::int64_t element) {
  if (rowType == kFp32) {
    std::memcpy(row + 4 * element, &value, 4);
    return;
  }
  std::uint16_t bits = 0;
  if (rowType == kFp16) {
    bits = encodeHalf(value);
  } else {  // rounding to 7 bits of fraction makes the low half zero; an overflow becomes infinite
    bits = static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(static_cast<float>(roundTo(value, 7, -126))) >> 16);
  }
  std::memcpy(row + 2 * element, &bits, 2);
}

}  // namespace moe::test
