#include "support/programs/describe_operation.h"

#include <fmt/format.h>

#include <algorithm>

#include "support/base/index.h"
#include "support/base/rng.h"
#include "support/reference/reference_describe.h"

namespace moe::test {
namespace {

template <class Item>
void put(const GuardedBytes& to, std::int64_t index, Item item) {
  std::memcpy(to.data() + index * std::int64_t{sizeof item}, &item, sizeof item);
}
template <class Item>
void putAll(const GuardedBytes& to, const std::vector<Item>& items) {
  for (std::size_t i = 0; i < items.size(); ++i) put(to, static_cast<std::int64_t>(i), items[i]);
}

}  // namespace

DescribeOperation::DescribeOperation(TestComm& comm, TestHandle& handle, std::shared_ptr<const ReferenceRoute> route,
                                     const DescribeCase& config, std::string name)
    : Operation(comm, handle, std::move(name)), route_(std::move(route)), config_(config), ranks_(at(comm.nranks())) {}

// All combinations occur. Layouts with a row per token have no rows of one expert.
bool DescribeOperation::wants(int rank, Array array) const {
  if (!hasRowPerExpert(route_->config.layout)) return false;
  return mix(config_.seed, static_cast<std::uint64_t>(rank * kArrays + array)) % 4 != 0;
}

std::int64_t DescribeOperation::rows(int rank) const {
  const bool fixed = hasFixedRows(route_->config.layout);
  const std::int64_t all = route_->arrivals[at(rank)].layoutRows + (fixed ? 0 : config_.spareRows);
  return fault_.at(rank) ? std::max<std::int64_t>(all - config_.lackingRows, 0) : all;
}

std::vector<GuardedBytes> DescribeOperation::arraysFor(int rank) const {
  const RouteConfig& config = route_->config;
  const std::int64_t bytes[kArrays] = {std::int64_t{8} * config.nranks * expertCount(config, rank), 4 * rows(rank)};
  std::vector<GuardedBytes> arrays;
  for (const std::int64_t size : bytes) arrays.emplace_back(at(size));
  return arrays;
}

void DescribeOperation::start(int rank, Report&) {
  ranks_[at(rank)] = arraysFor(rank);
}

StepParams DescribeOperation::params(int rank, int phases) {
  StepParams p = emptyParams(rank, phases);
  const auto place = [&](Array array, auto*& pointer) {
    using Item = std::remove_reference_t<decltype(*pointer)>;
    if (wants(rank, array)) pointer = reinterpret_cast<Item*>(ranks_[at(rank)][at(array)].data());
  };
  place(kRanges, p.describe.layoutRange);
  place(kExperts, p.describe.rowExperts);
  p.dispatch.padding = config_.padding;
  p.dispatch.capacity = rows(rank);
  p.dispatch.idBase = idBase(rank);
  p.dispatch.invalidId = config_.invalidId;
  return p;
}

void DescribeOperation::finish(int rank, Report& report) {
  static constexpr const char* kNames[kArrays] = {"ranges", "experts"};
  const std::vector<GuardedBytes> expected = arraysFor(rank);
  const bool nothing = fault_.at(rank);
  const std::vector<std::int64_t> ranges = layoutRanges(*route_, rank);
  putAll(expected[kRanges], nothing ? std::vector<std::int64_t>(ranges.size(), 0) : ranges);
  for (std::int64_t row = 0; (config_.padding & kPadIndices) != 0 && row < rows(rank); ++row) {
    put(expected[kExperts], row, config_.invalidId);
  }
  for (const DescribedRow& row : nothing ? std::vector<DescribedRow>{} : describedRows(*route_, rank)) {
    put(expected[kExperts], row.row, idBase(rank) + row.localExpert);
  }
  for (int array = 0; array < kArrays; ++array) {
    const GuardedBytes& actual = ranks_[at(rank)][at(array)];
    const bool good = wants(rank, static_cast<Array>(array))
                          ? std::memcmp(actual.data(), expected[at(array)].data(), actual.size()) == 0
                          : isPoison(actual.data(), actual.size());
    if (!good || !actual.guardsAreIntact()) report.add(rank, fmt::format("{}: {} are wrong", name_, kNames[array]));
  }
  ranks_[at(rank)].clear();
}

}  // namespace moe::test
