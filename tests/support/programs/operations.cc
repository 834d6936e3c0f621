#include "support/programs/operations.h"

#include <fmt/format.h>

#include <algorithm>

#include "support/base/index.h"
#include "support/programs/program.h"
#include "support/reference/payload.h"
#include "support/reference/reference_describe.h"

namespace moe::test {

bool Report::empty() const {
  return std::all_of(lines_.begin(), lines_.end(), [](const auto& lines) { return lines.empty(); });
}

std::string Report::text() const {
  std::string text;
  for (std::size_t rank = 0; rank < lines_.size(); ++rank)
    for (const std::string& line : lines_[rank]) text += fmt::format("rank {}: {}\n", rank, line);
  return text;
}

StepParams Operation::emptyParams(int rank, int phases) const {
  StepParams params{};
  params.comm = comm_.view(rank);
  params.comm.waits = handle_.waits(rank);
  params.handle = handle_.view(rank);
  params.phases = phases;
  return params;
}

bool Operation::hearsOverRails(int rank) const {
  const CommShape& comm = comm_.shape();
  if (!fault_.at(rank) || handle_.shape().lowLatency || comm.domains() == 1) return false;
  if (fault_.fault == Fault::badIndex || fault_.fault == Fault::twice) return false;
  if (fault_.culprit < 0) return false;  // a void route, which all ranks know of
  return rank / comm.domainSize != fault_.culprit / comm.domainSize || peersDisagree();
}
// If each rank is a domain, rail peers themselves report that they differ.
bool Operation::peersDisagree() const {
  return fault_.fault == Fault::disagreement && comm_.shape().domainSize == 1;
}

// If one rank's value differs from those of all others, the others name this rank, and it names another one.
void Operation::checkStatus(int rank, Report& report) const {
  const HandleView handle = handle_.view(rank);
  const Failure& kept = *handle.fault;
  Fault expected = fault_.at(rank) ? fault_.fault : Fault::none;
  int culprit = fault_.culprit;
  if (hearsOverRails(rank) && !peersDisagree()) {
    const int size = comm_.shape().domainSize;
    expected = Fault::elsewhere;
    culprit = culprit / size * size + rank % size;
  }
  const Fault seen = kept.ready != 0 ? kept.fault : Fault::none;
  Failure first{};
  first.fault = fault_.fault;
  const std::uint32_t word = expected == Fault::none ? 0 : resultOf(first);
  const bool named = expected != Fault::disagreement || rank != culprit ? kept.peer == culprit : kept.peer != rank;
  if (seen == expected && handle.state->fault == word && (expected == Fault::none || named)) return;
  report.add(rank,
             fmt::format("{}: the handle has fault {} of rank {} and the word {}, not fault {} of rank {}", name_,
                         static_cast<int>(seen), kept.peer, handle.state->fault, static_cast<int>(expected), culprit));
}

// ---- Output areas

namespace {
constexpr std::int64_t kAreaGuard = 256;
}

OutputAreas::OutputAreas(TestComm& comm, int count, std::int64_t bytesEach)
    : comm_(comm), count_(count), bytesEach_(bytesEach), used_(at(comm.nranks()) * at(count), 0) {}

std::int64_t& OutputAreas::used(int rank, int area) const {
  return used_[at(rank) * at(count_) + at(area)];
}

std::uint64_t OutputAreas::offset(int rank, int area) const {
  return comm_.at().heap + static_cast<std::uint64_t>((area + rank) % count_ * bytesEach_);
}

std::uint8_t* OutputAreas::data(int rank, int area) const {
  return comm_.rank(rank).window.data() + offset(rank, area);
}

bool OutputAreas::acquire(int rank, int area, std::int64_t bytes) {
  const bool clean = isPoison(data(rank, area), at(std::min(used(rank, area) + kAreaGuard, bytesEach_)));
  used(rank, area) = bytes;
  return clean && bytes + kAreaGuard <= bytesEach_;
}

bool OutputAreas::release(int rank, int area) {
  const bool clean = isPoison(data(rank, area) + used(rank, area), kAreaGuard);
  std::memset(data(rank, area), kPoison, at(used(rank, area)));
  return clean;
}

void OutputAreas::clear() {
  for (int rank = 0; rank < comm_.nranks(); ++rank) {
    for (int area = 0; area < count_; ++area) {
      std::memset(data(rank, area), kPoison, at(bytesEach_));
      used(rank, area) = 0;
    }
  }
}

// ---- Route

RouteOperation::RouteOperation(TestComm& comm, TestHandle& handle, std::shared_ptr<const ReferenceRoute> route,
                               bool giveWeights, std::string name, std::vector<RouteInput> given,
                               std::optional<PlacedExperts> placed)
    : Operation(comm, handle, std::move(name)),
      route_(std::move(route)),
      given_(std::move(given)),
      placed_(std::move(placed)),
      giveWeights_(giveWeights),
      ids_(at(comm.nranks())),
      weights_(at(comm.nranks())) {}

const RouteInput& RouteOperation::inputOf(int rank) const {
  return given_.empty() ? route_->inputs[at(rank)] : given_[at(rank)];
}

void RouteOperation::start(int rank, Report&) {
  handle_.takeTicket(rank);
  handle_.setTokensBound(rank, route_->config.tokensMax);
  handle_.setPlacement(rank, placed_);
  const RouteInput& input = inputOf(rank);
  const bool wide = handle_.shape().wideIndex;
  GuardedBytes& ids = ids_[at(rank)] = GuardedBytes(input.experts.size() * (wide ? 8 : 4));
  for (std::size_t i = 0; i < input.experts.size(); ++i) {
    std::int64_t id = input.experts[i];
    // An invalid id of 64 bits may have the low half of a valid one.
    if (wide && handle_.shape().named == 0 && id >= route_->config.experts) id += (std::int64_t{1} << 32) - id;
    std::memcpy(ids.data() + i * (wide ? 8 : 4), &id, wide ? 8 : 4);  // little endian
  }
  GuardedBytes& weights = weights_[at(rank)] = GuardedBytes(input.weights.size() * 4);
  if (!input.weights.empty()) std::memcpy(weights.data(), input.weights.data(), weights.size());
}

StepParams RouteOperation::params(int rank, int phases) {
  StepParams params = emptyParams(rank, phases);
  const RouteInput& input = inputOf(rank);
  params.route.topkIdx = input.tokens == 0 ? nullptr : ids_[at(rank)].data();
  params.route.topkWeights = giveWeights_ ? reinterpret_cast<const float*>(weights_[at(rank)].data()) : nullptr;
  params.route.tokens = input.tokens;
  return params;
}

void RouteOperation::finish(int rank, Report& report) {
  ids_[at(rank)] = GuardedBytes();
  weights_[at(rank)] = GuardedBytes();
  const HandleView handle = handle_.view(rank);
  checkCounts(handle, route_->config, route_->arrivals[at(rank)], rank, name_, report);
  if (handle.rowsBudget > 0) checkWanted(handle, route_->wanted[at(rank)], rank, name_, report);
  if (handle.countsExperts != 0) checkAllExperts(handle, *route_, rank, name_, report);
  checkStatus(rank, report);
}

// ---- Dispatch that routes

void RouteDispatchOperation::start(int rank, Report& report) {
  route_->start(rank, report);
  dispatch_->start(rank, report);
}

StepParams RouteDispatchOperation::params(int rank, int phases) {
  StepParams params = dispatch_->params(rank, phases);
  params.route = route_->params(rank, phases).route;
  if (params.dispatch.cast.rowWeights != nullptr) params.dispatch.cast.rowWeights = params.route.topkWeights;
  if ((phases & kSendPhase) != 0) drawArrays(rank, params);
  describe(rank, &params);
  return params;
}

// Callers may ask for these arrays in any dispatch. If its step is not plain, a step behind it fills them.
void RouteDispatchOperation::drawArrays(int rank, const StepParams& params) {
  PerRank& own = ranks_[at(rank)];
  const auto experts = at(expertCount(dispatch_->route().config, rank));
  own = {asksForArrays(params), params.comm.waits == nullptr, GuardedBytes(experts * at(comm_.nranks()) * 8),
         GuardedBytes(experts * 4), GuardedBytes(experts * 4)};
  if (own.asks) std::memset(own.sums.data(), 1, own.sums.size());
}

void RouteDispatchOperation::describe(int rank, StepParams* params) {
  PerRank& own = ranks_[at(rank)];
  if (!own.asks) return;
  if (hasRowPerExpert(dispatch_->route().config.layout)) {
    params->describe.layoutRange = reinterpret_cast<std::int64_t*>(own.ranges.data());
  }
  params->describe.rowsPerExpert = reinterpret_cast<std::int32_t*>(own.counts.data());
  params->tally.callRows = reinterpret_cast<std::int32_t*>(own.sums.data());
}

void RouteDispatchOperation::checkDescription(int rank, Report& report) const {
  const PerRank& own = ranks_[at(rank)];
  if (!own.asks || !dispatch_->isChecked()) return;
  const ReferenceRoute& route = dispatch_->route();
  std::vector<std::int64_t> ranges = layoutRanges(route, rank);
  std::vector<std::int32_t> counts = route.arrivals[at(rank)].rowsPerExpert;
  if (dispatch_->deliversNothing(rank)) {
    std::fill(ranges.begin(), ranges.end(), 0);
    std::fill(counts.begin(), counts.end(), 0);
  }
  std::vector<std::int32_t> sums(counts.size(), 0x01010101);
  for (std::size_t e = 0; own.addsUp && e < sums.size(); ++e) sums[e] += counts[e];
  const auto check = [&](const GuardedBytes& actual, const auto& expected, const char* what) {
    const bool same = expected.empty() || std::memcmp(actual.data(), expected.data(), actual.size()) == 0;
    if (!same || !actual.guardsAreIntact()) report.add(rank, fmt::format("{}: {} are wrong", name_, what));
  };
  if (hasRowPerExpert(route.config.layout)) check(own.ranges, ranges, "ranges of sources");
  check(own.counts, counts, "rows per expert");
  check(own.sums, sums, "sums of rows per expert");
}

void RouteDispatchOperation::finish(int rank, Report& report) {
  checkDescription(rank, report);
  route_->finish(rank, report);
  dispatch_->finish(rank, report);
}

bool isTold(const HandleView& handle, CountWord word, int expected) {
  return word == countWord(handle.ticket, expected);
}

void checkWanted(const HandleView& handle, const Arrivals& wanted, int rank, const std::string& name, Report& report) {
  std::vector<int> expected = wanted.rowsPerExpert;
  expected.insert(expected.begin(), static_cast<int>(wanted.tokens.size()));
  const int experts = static_cast<int>(wanted.rowsPerExpert.size());
  const CountWord* host = handle.countsWanted(rank);
  for (int i = 0; i <= experts; ++i) {
    if (handle.arriving.wanted[i] == expected[at(i)] && isTold(handle, host[i], expected[at(i)])) continue;
    report.add(rank, fmt::format("{}: wanted count {} is {}, on the host {} of route {}, not {} of {}", name, i,
                                 handle.arriving.wanted[i], countOf(host[i]), ticketOf(host[i]), expected[at(i)],
                                 handle.ticket));
  }
}

void checkAllExperts(const HandleView& handle, const ReferenceRoute& route, int rank, const std::string& name,
                     Report& report) {
  std::vector<int> expected;
  for (const Arrivals& arrivals : route.arrivals)
    expected.insert(expected.end(), arrivals.rowsPerExpert.begin(), arrivals.rowsPerExpert.end());
  const CountWord* host = handle.countsOfAllExperts(rank);
  for (int e = 0; e < route.config.experts; ++e) {
    if (handle.arriving.allExperts[e] == expected[at(e)] && isTold(handle, host[e], expected[at(e)])) continue;
    report.add(rank, fmt::format("{}: expert {} gets {} rows, on the host {} of route {}, not {} of {}", name, e,
                                 handle.arriving.allExperts[e], countOf(host[e]), ticketOf(host[e]), expected[at(e)],
                                 handle.ticket));
  }
}

void checkCounts(const HandleView& handle, const RouteConfig& config, const Arrivals& arrivals, int rank,
                 const std::string& name, Report& report) {
  auto expect = [&](const char* what, std::int64_t actual, std::int64_t expected) {
    if (actual != expected) report.add(rank, fmt::format("{}: {} is {}, not {}", name, what, actual, expected));
  };
  const auto expectTold = [&](const char* what, CountWord word, std::int64_t expected) {
    expect(what, countOf(word), expected);
    expect("the route of a host's count", ticketOf(word), handle.ticket);
  };
  expect("rows", *handle.arriving.rows, static_cast<std::int64_t>(arrivals.tokens.size()));
  expectTold("host rows", handle.counts->rows, static_cast<std::int64_t>(arrivals.tokens.size()));
  expectTold("host layout rows", handle.counts->layoutRows, arrivals.layoutRows);
  int offset = 0;
  for (int from = 0; from < config.nranks; ++from) {
    expect("rank offset", handle.arriving.rankOffsets[from], offset);
    expectTold("host rows per rank", handle.countsPerRank()[from], arrivals.rowsPerRank[at(from)]);
    offset += arrivals.rowsPerRank[at(from)];
  }
  expect("last rank offset", handle.arriving.rankOffsets[config.nranks], offset);
  for (int e = 0; e < expertCount(config, rank); ++e) {
    expect("rows per expert", handle.arriving.rowsPerExpert[e], arrivals.rowsPerExpert[at(e)]);
    expectTold("host rows per expert", handle.countsPerExpert()[e], arrivals.rowsPerExpert[at(e)]);
    if (handle.layout != Layout::expertMajor) continue;
    expect("expert offset", handle.arriving.expertOffsets[e], arrivals.expertOffsets[at(e)]);
  }
  if (handle.layout != Layout::expertMajor) return;
  expect("last expert offset", handle.arriving.expertOffsets[expertCount(config, rank)], arrivals.expertOffsets.back());
}

}  // namespace moe::test
