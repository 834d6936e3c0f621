// Implements the combine of operations.h: inputs, outputs and their check.
#include <fmt/format.h>

#include "device/view/ll_slots.h"
#include "device/view/terms.h"
#include "moecomm.h"
#include "support/base/index.h"
#include "support/programs/operations.h"
#include "support/reference/payload.h"

namespace moe::test {
namespace {

constexpr std::uint64_t kBias0Seed = 0xb0, kBias1Seed = 0xb1, kGradSeed = 0x9ad, kWeightSeed = 0x3e1;

float gradOf(std::uint64_t seed, int source, int token, int k) {
  return static_cast<float>(rowKey(seed ^ kGradSeed, source, token, k) % 100003) / 7.0f;
}

float weightOf(std::uint64_t seed, int source, int token, int k) {
  return static_cast<float>(rowKey(seed ^ kWeightSeed, source, token, k) % 1009) / 256.0f;
}

}  // namespace

CombineOperation::CombineOperation(TestComm& comm, TestHandle& handle, std::shared_ptr<const ReferenceRoute> route,
                                   OutputAreas* areas, CombineOptions options, std::string name)
    : Operation(comm, handle, std::move(name)),
      route_(std::move(route)),
      areas_(areas),
      options_(std::move(options)),
      ranks_(at(comm.nranks())) {}

// Calls body(token, entry or null, row) for each row of the layout that a rank has.
template <class Body>
static void forEachRow(const ReferenceRoute& route, int rank, Body body) {
  for (const ArrivedToken& token : route.arrivals[at(rank)].tokens) {
    if (!hasRowPerExpert(route.config.layout)) body(token, nullptr, token.row);
    if (hasRowPerExpert(route.config.layout))
      for (const ArrivedEntry& entry : token.entries) body(token, &entry, entry.row);
  }
}

void CombineOperation::fillGrads(int rank) {
  PerRank& own = ranks_[at(rank)];
  const bool perExpert = hasRowPerExpert(route_->config.layout);
  const int topk = route_->config.topk;
  own.grads = GuardedBytes(at(route_->arrivals[at(rank)].layoutRows * (perExpert ? 1 : topk)) * 4);
  auto* grads = reinterpret_cast<float*>(own.grads.data());
  for (const ArrivedToken& token : route_->arrivals[at(rank)].tokens) {
    for (const ArrivedEntry& entry : token.entries) {
      const std::int64_t to = perExpert ? entry.row : token.row * topk + entry.topk;
      grads[to] = gradOf(options_.seed, token.source, token.token, entry.topk);
    }
  }
}

void CombineOperation::fillWeights(int rank) {
  PerRank& own = ranks_[at(rank)];
  const int topk = route_->config.topk, entries = route_->inputs[at(rank)].tokens * topk;
  own.weights = GuardedBytes(at(entries) * 4);
  auto* weights = reinterpret_cast<float*>(own.weights.data());
  for (int i = 0; i < entries; ++i) weights[i] = weightOf(options_.seed, rank, i / topk, i % topk);
}
// The weights as they count: a merged entry adds to the weight of the earlier entry.
std::vector<float> CombineOperation::mergedWeights(int rank) const {
  const RouteInput& input = route_->inputs[at(rank)];
  const int topk = route_->config.topk;
  std::vector<float> weights;
  for (int i = 0; i < input.tokens * topk; ++i) {
    const float weight = weightOf(options_.seed, rank, i / topk, i % topk);
    weights.push_back(weight);
    const int id = input.experts[at(i)];
    if (id < -1) weights[at(i / topk * topk - 2 - id)] += weight;
  }
  return weights;
}

// One rank may state another row size than its peers, and pass rows of that size.
std::int64_t CombineOperation::rowBytesSaid(int rank) const {
  return options_.sum.rowBytes + (isOdd(rank, CombineOptions::Odd::rowBytes) ? options_.oddBytes() : 0);
}

int CombineOperation::rowTypeSaid(int rank) const {
  const int type = options_.sum.rowType;
  return !isOdd(rank, CombineOptions::Odd::rowType) ? type : type == kBf16 ? kFp16 : kBf16;
}
int CombineOperation::wireSaid(int rank) const {
  const int wire = options_.sum.wire;
  return !isOdd(rank, CombineOptions::Odd::wire) ? wire : wire % moeWireLogfmt10 + 1;
}
bool CombineOperation::gradsSaid(int rank) const {
  return options_.grads != isOdd(rank, CombineOptions::Odd::grads);
}

// Makes the rows that the caller passes, in memory of its own or where peers can read them.
std::uint8_t* CombineOperation::makeRows(int rank, Report& report) {
  PerRank& own = ranks_[at(rank)];
  const std::int64_t rowBytes = options_.sum.rowBytes, bytes = route_->arrivals[at(rank)].layoutRows * rowBytes;
  const CommView& c = own.params.comm;
  std::uint8_t* rows = nullptr;
  if (inPlace(rank) && handle_.shape().lowLatency) {
    rows = llSlot(c, own.params.handle, rank, c.at.llCombineRows, c.rowBytesMax, 0, 0, 0);
  } else if (inPlace(rank)) {
    if (!areas_->acquire(rank, options_.area, bytes)) report.add(rank, name_ + ": the area of the rows was written");
    rows = areas_->data(rank, options_.area);
  } else {
    own.rows = GuardedBytes(at(route_->arrivals[at(rank)].layoutRows * rowBytesSaid(rank)));
    rows = bytes == 0 ? nullptr : own.rows.data();
  }
  if (isReadyLater(rank)) return rows;
  forEachRow(*route_, rank, [&](const ArrivedToken& token, const ArrivedEntry* entry, std::int64_t row) {
    makeRow(rank, token, entry, rows + row * rowBytes);
  });
  return rows;
}

void CombineOperation::start(int rank, Report& report) {
  PerRank& own = ranks_[at(rank)];
  const int tokens = route_->inputs[at(rank)].tokens;
  // The size that this rank states, because it may read and write some tokens before the combine is refused.
  const std::int64_t tokenBytes = tokens * rowBytesSaid(rank);
  own.params = emptyParams(rank, 0);
  std::uint8_t* rows = makeRows(rank, report);
  own.bias0 = GuardedBytes(at(tokenBytes));
  own.bias1 = GuardedBytes(at(tokenBytes));
  fillTypedRow(rowTypeSaid(rank), mix(options_.seed ^ kBias0Seed, static_cast<std::uint64_t>(rank)), own.bias0.data(),
               tokenBytes);
  fillTypedRow(rowTypeSaid(rank), mix(options_.seed ^ kBias1Seed, static_cast<std::uint64_t>(rank)), own.bias1.data(),
               tokenBytes);
  own.out = GuardedBytes(at(tokenBytes));
  own.outGrads = GuardedBytes(at(tokens * route_->config.topk) * 4);
  fillGrads(rank);
  fillWeights(rank);
  fillArgs(rank, rows);
}

void CombineOperation::fillArgs(int rank, std::uint8_t* rows) {
  PerRank& own = ranks_[at(rank)];
  const CombineCase& sum = options_.sum;
  const int tokens = route_->inputs[at(rank)].tokens;
  CombineArgs& a = own.params.combine = CombineArgs{};
  a.rows = rows;
  a.inPlace = inPlace(rank) ? 1 : 0;
  a.rowsOffset = a.inPlace != 0 && !handle_.shape().lowLatency
                     ? areas_->offset(rank, options_.area)
                     : stagingAt(comm_.shape(), comm_.at(), options_.stagingArea).rows;
  a.capacity = comm_.shape().stagingRows;
  if (rank == options_.smallStaging)
    a.capacity = static_cast<std::int64_t>(route_->arrivals[at(rank)].tokens.size()) - 1;
  a.tokens = tokens;
  a.rowBytes = static_cast<std::uint32_t>(rowBytesSaid(rank));
  a.rowType = rowTypeSaid(rank);
  const bool grads = gradsSaid(rank);
  a.grads = grads ? 1 : 0;
  a.wire = wireSaid(rank);
  a.elements = static_cast<int>(a.rowBytes) / elementBytes(a.rowType);
  a.wireBytes = a.wire == 0 ? a.rowBytes : static_cast<std::uint32_t>(referenceWireBytes(a.wire, a.elements));
  a.terms = packCombineTerms(a.rowBytes, a.rowType, grads, a.wire);
  a.held = rows == nullptr ? 0 : kAnyRows;
  if (rank == options_.shortRows) a.held = options_.noRows ? 0 : route_->arrivals[at(rank)].layoutRows - 1;
  if (rank == options_.shortRows && options_.noRows) a.rows = nullptr;
  a.weighted = sum.weighted ? 1 : 0;
  a.topkWeights = options_.weights && tokens > 0 ? reinterpret_cast<const float*>(own.weights.data()) : nullptr;
  a.parts = a.arriving = options_.parts;
  a.out = tokens == 0 ? nullptr : own.out.data();
  a.bias0 = options_.bias0 ? own.bias0.data() : nullptr;
  a.bias1 = options_.bias1 ? own.bias1.data() : nullptr;
  const bool given = grads && rank != options_.noGrads;
  a.weightGrads = given ? reinterpret_cast<const float*>(own.grads.data()) : nullptr;
  a.outWeightGrads = grads ? reinterpret_cast<float*>(own.outGrads.data()) : nullptr;
  if (isReadyLater(rank)) fillReady(rank);
}

StepParams CombineOperation::params(int rank, int phases) {
  StepParams params = ranks_[at(rank)].params;
  params.phases = phases;
  CombineArgs& a = params.combine;
  if (phases != kWhole || params.handle.lowLatency != 0 || params.handle.hasRails()) return params;
  const bool mayKeep = a.inPlace == 0 && a.rows != nullptr && !expertRows(params.handle);
  if (mayKeep) a.ownRows = (rank + a.tokens) % 2;  // half of the ranks
  // Ranks divide their warps differently, or not at all.
  const int choice = rank + 3 * a.tokens, waves = params.handle.waves;
  if (a.ready.words == nullptr && waves > 1) {
    a.makers = {static_cast<std::int16_t>(choice % 4), static_cast<std::int16_t>(1 + choice / 4 % (waves - 1))};
  }
  return params;
}

const std::uint8_t* CombineOperation::makeRow(int rank, const ArrivedToken& token, const ArrivedEntry* entry,
                                              std::uint8_t* row) const {
  const int share = entry != nullptr ? entry->topk + 1 : 0;
  const std::uint64_t key = rowKey(options_.seed + static_cast<std::uint64_t>(rank), token.source, token.token, share);
  fillTypedRow(options_.sum.rowType, key, row, options_.sum.rowBytes);
  return row;
}

void CombineOperation::checkGrads(int rank, Report& report) const {
  const PerRank& own = ranks_[at(rank)];
  const RouteInput& input = route_->inputs[at(rank)];
  const int topk = route_->config.topk;
  if (!gradsSaid(rank)) {
    if (!isPoison(own.outGrads.data(), own.outGrads.size()))
      report.add(rank, name_ + ": weight gradients not asked for");
    return;
  }
  const auto* grads = reinterpret_cast<const float*>(own.outGrads.data());
  for (int i = 0; i < input.tokens * topk; ++i) {
    const int token = i / topk, id = input.experts[at(i)], k = id < -1 ? -2 - id : i % topk;
    const int expert = input.experts[at(token * topk + k)];
    const bool counts = expert >= 0 && !fault_.at(rankOfExpert(route_->config, expert));
    const float expected = counts ? gradOf(options_.seed, rank, token, k) : 0.0f;
    if (grads[i] != expected)
      return report.add(rank, fmt::format("{}: weight gradient {} is {}, not {}", name_, i, grads[i], expected));
  }
}

void CombineOperation::finish(int rank, Report& report) {
  PerRank& own = ranks_[at(rank)];
  const std::vector<float> weights = options_.weights ? mergedWeights(rank) : std::vector<float>();
  const CombineCase sum{rowTypeSaid(rank), rowBytesSaid(rank), options_.sum.weighted,
                        options_.weights ? &weights : nullptr, wireSaid(rank)};
  const std::int64_t rowBytes = sum.rowBytes;
  std::vector<std::uint8_t> buffer(at(rowBytes));
  for (int token = 0; token < route_->inputs[at(rank)].tokens; ++token) {
    const auto biasAt = [&](bool given, const GuardedBytes& bias) {
      return given ? bias.data() + token * rowBytes : nullptr;
    };
    const auto expected = referenceSum(
        *route_, sum, rank, token,
        [&](int from, const ArrivedToken& arrived, const ArrivedEntry* entry) -> const std::uint8_t* {
          if (!fault_.at(from)) return makeRow(from, arrived, entry, buffer.data());
          std::fill(buffer.begin(), buffer.end(), 0);
          return buffer.data();
        },
        biasAt(options_.bias0, own.bias0), biasAt(options_.bias1, own.bias1));
    if (std::memcmp(own.out.data() + token * rowBytes, expected.data(), at(rowBytes)) == 0) continue;
    report.add(rank, fmt::format("{}: the sum of token {} is wrong", name_, token));
    break;
  }
  checkGrads(rank, report);
  if (!own.out.guardsAreIntact() || !own.outGrads.guardsAreIntact())
    report.add(rank, name_ + ": something was written behind an output");
  if (inPlace(rank) && !handle_.shape().lowLatency && !areas_->release(rank, options_.area))
    report.add(rank, name_ + ": something was written behind the rows");
  checkStatus(rank, report);
  own = PerRank{};
}

}  // namespace moe::test
