// Checks the arrays of moe_step.h that a separate step fills.
#include "support/api/moe_step.h"
#include "support/base/index.h"
#include "support/reference/reference_describe.h"

namespace moe::test {

void MoeStep::takeDescribed() {
  const auto take = [&](std::int64_t bytes) { return context_.arena.take(at(bytes)); };
  outExperts_ = static_cast<std::int32_t*>(take(rowsMax_ * 4));
  outRange_ = static_cast<std::int64_t*>(take(std::int64_t{case_.experts} * context_.nranks * 8));
  outRows_ = static_cast<std::int32_t*>(take(std::int64_t{case_.experts} * 4));
}

void MoeStep::askToDescribe(moeDescribe_t& describe) const {
  const bool perExpert = hasRowPerExpert(static_cast<Layout>(case_.layout));
  describe.idKind = case_.idKind;
  describe.invalidId = case_.invalidId;
  describe.outTopkIdx = perExpert ? nullptr : outIds_;
  describe.outTopkWeights = outWeights_;
  describe.outSourceIndex = outSource_;
  describe.outExpertOffsets = case_.layout == moeLayoutExpertMajor ? outOffsets_ : nullptr;
  describe.outBlockOffsets = asksForBlocks() ? outBlocks_ : nullptr;
  if (!case_.describes) return;
  describe.outRowsPerExpert = outRows_;
  if (!perExpert) return;
  describe.outLayoutRange = outRange_;
  if (asksForExperts()) describe.outRowExperts = outExperts_;
}

// Only some cases ask for the experts of rows, because a separate step fills all these arrays then.
bool MoeStep::asksForExperts() const {
  return case_.padding != 0 || case_.idKind == moeIdsGlobal;
}

void MoeStep::checkDescribed() {
  const int rank = context_.rank;
  const std::vector<std::int32_t>& counts = reference_->arrivals[at(rank)].rowsPerExpert;
  EXPECT_EQ(context_.arena.get(outRows_, counts.size()), counts) << case_.name();
  if (!hasRowPerExpert(static_cast<Layout>(case_.layout))) return;
  const auto experts = context_.arena.get(outExperts_, at(rowsMax_));
  const int base = case_.idKind == moeIdsGlobal ? firstGlobal() : 0;
  for (const DescribedRow& row : describedRows(*reference_, rank)) {
    if (!asksForExperts()) break;
    EXPECT_EQ(experts[at(row.row)], base + row.localExpert) << case_.name();
  }
  for (const std::int64_t row : emptyRows()) {
    if ((case_.padding & moePadIndices) == 0) break;
    EXPECT_EQ(experts[at(row)], case_.invalidId) << case_.name();
  }
  const auto ranges = layoutRanges(*reference_, rank);
  EXPECT_EQ(context_.arena.get(outRange_, ranges.size()), ranges) << case_.name();
}

}  // namespace moe::test
