// Plain versions of route, dispatch and combine that every policy is compared with. They loop over whole tokens of all
// ranks. They share no code with the protocols but the names of layouts and row types.
#pragma once

#include <cstdint>
#include <vector>

#include "device/rows/row_math.h"
#include "device/view/views.h"
#include "support/reference/wire_reference.h"

namespace moe::test {

struct RouteConfig {
  int nranks = 1;
  int experts = 1;
  int topk = 1;
  Layout layout = Layout::flat;
  int tokensMax = 0;
  int alignment = 1;
  int domainSize = 0;     // 0: one domain
  bool railSums = false;  // combine: other domains send one sum each, not one row per rank
  int rowsBudget = 0;     // most tokens that arrive at a rank; 0: all do

  int domainOf(int rank) const { return domainSize == 0 ? 0 : rank / domainSize; }
};

// The input of one rank's route.
struct RouteInput {
  int tokens = 0;
  std::vector<int> experts;    // [tokens][topk], -1 = unused
  std::vector<float> weights;  // [tokens][topk]
};

// An expert's share of an arriving token.
struct ArrivedEntry {
  int topk;         // position in the token's list
  int localExpert;  // on the receiver
  float weight;
  std::int64_t row;  // of the layout
};

// A token that arrives at a rank.
struct ArrivedToken {
  int source, token;
  std::int64_t row;  // row of the layout, if the layout has one row per token
  std::vector<ArrivedEntry> entries;
};

// Everything that arrives at one rank, in FLAT order.
struct Arrivals {
  std::vector<ArrivedToken> tokens;
  std::vector<int> rowsPerRank, rowsPerExpert, expertOffsets;
  std::int64_t layoutRows = 0;
};

struct ReferenceRoute {
  RouteConfig config;
  std::vector<RouteInput> inputs;  // [nranks]; entries behind the budget are -1
  std::vector<Arrivals> arrivals;  // [nranks]
  std::vector<Arrivals> wanted;    // [nranks], without a budget
};

bool hasRowPerExpert(Layout layout);
bool hasFixedRows(Layout layout);  // the layout has all slots, whatever arrives
int firstExpert(const RouteConfig& config, int rank);
int expertCount(const RouteConfig& config, int rank);
int rankOfExpert(const RouteConfig& config, int expert);

ReferenceRoute makeReferenceRoute(const RouteConfig& config, std::vector<RouteInput> inputs);

// Decode and encode the elements of a row type by the definition of its format.
float decodeElement(int rowType, const std::uint8_t* row, std::int64_t element);
void encodeElement(int rowType, float value, std::uint8_t* row, std::int64_t element);

struct CombineCase {
  int rowType = kBf16;
  std::int64_t rowBytes = 16;
  bool weighted = false;
  const std::vector<float>* weights = nullptr;  // the owner's, [tokens][topk]; NULL: those of the route
  int wire = 0;                                 // a moeWire value
};

// One token's sum, of rowBytes bytes. `rowOf(rank, arrived, entry)` is what that rank passes to combine for an arrived
// token, or for one of its entries if the layout has a row per expert. Biases may be null.
template <class RowOf>
std::vector<std::uint8_t> referenceSum(const ReferenceRoute& route, const CombineCase& combine, int owner, int token,
                                       RowOf rowOf, const std::uint8_t* bias0, const std::uint8_t* bias1) {
  const std::int64_t elements = combine.rowBytes / elementBytes(combine.rowType);
  const auto bytes = static_cast<std::size_t>(combine.rowBytes);
  std::vector<float> sum(static_cast<std::size_t>(elements), 0.0f), partial(sum);
  std::vector<std::uint8_t> rounded(bytes), out(bytes);
  auto add = [&](std::vector<float>& to, const std::uint8_t* row, const float* weight) {
    for (std::int64_t i = 0; i < elements; ++i) {
      volatile float term = decodeElement(combine.rowType, row, i);  // volatile prevents a fused multiply-add
      if (weight != nullptr) term = term * *weight;
      to[static_cast<std::size_t>(i)] += term;
    }
  };
  auto store = [&](const std::vector<float>& from, std::vector<std::uint8_t>& to) {
    for (std::int64_t i = 0; i < elements; ++i)
      encodeElement(combine.rowType, from[static_cast<std::size_t>(i)], to.data(), i);
  };
  // Adds a sum of another rank or domain, as it arrives.
  auto addArrived = [&](std::vector<float>& to, const std::vector<float>& from) {
    if (combine.wire == 0) {
      store(from, rounded);
      return add(to, rounded.data(), nullptr);
    }
    const std::vector<float> values = referenceWire(combine.wire, from).values;
    for (std::size_t i = 0; i < values.size(); ++i) to[i] += values[i];
  };
  // Adds one rank's contribution. False if the token did not go there.
  auto addRank = [&](std::vector<float>& to, int rank) {
    for (const ArrivedToken& arrived : route.arrivals[static_cast<std::size_t>(rank)].tokens) {
      if (arrived.source != owner || arrived.token != token) continue;
      partial.assign(partial.size(), 0.0f);
      if (!hasRowPerExpert(route.config.layout)) add(partial, rowOf(rank, arrived, nullptr), nullptr);
      for (const ArrivedEntry& entry : arrived.entries) {
        if (!hasRowPerExpert(route.config.layout)) break;
        const auto at = static_cast<std::size_t>(token * route.config.topk + entry.topk);
        const float& weight = combine.weights != nullptr ? (*combine.weights)[at] : entry.weight;
        add(partial, rowOf(rank, arrived, &entry), combine.weighted ? &weight : nullptr);
      }
      addArrived(to, partial);
      return true;
    }
    return false;
  };
  // The owner's domain comes first.
  const int own = route.config.domainOf(owner), nranks = route.config.nranks;
  for (int rank = 0; rank < nranks; ++rank)
    if (route.config.domainOf(rank) == own) addRank(sum, rank);
  for (int rank = 0; rank < nranks;) {
    const int domain = route.config.domainOf(rank);
    std::vector<float> domainSum(sum.size(), 0.0f);
    bool came = false;
    for (; rank < nranks && route.config.domainOf(rank) == domain; ++rank)
      if (domain != own) came = addRank(route.config.railSums ? domainSum : sum, rank) || came;
    if (!came || !route.config.railSums) continue;
    addArrived(sum, domainSum);
  }
  if (bias0 != nullptr) add(sum, bias0, nullptr);
  if (bias1 != nullptr) add(sum, bias1, nullptr);
  store(sum, out);
  return out;
}

}  // namespace moe::test
