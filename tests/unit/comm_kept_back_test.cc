#include <gtest/gtest.h>

#include "comm/communicator/error_state.h"

namespace moe::test {
namespace {

TEST(KeptBack, KeepsTheFirstReportUntilTheGroupIsComplete) {
  KeptBack reports;
  EXPECT_FALSE(reports.counts(moeRemoteError, "rank 3: it closed the connection"));
  EXPECT_FALSE(reports.counts(moeTimeout, "rank 4 does not answer"));
  const auto kept = reports.complete();
  ASSERT_TRUE(kept);
  EXPECT_EQ(*kept, KeptBack::Report(moeRemoteError, "rank 3: it closed the connection"));
  EXPECT_TRUE(reports.counts(moeTimeout, "rank 4 does not answer"));
  EXPECT_FALSE(reports.complete());
}

TEST(KeptBack, HasNothingWhereNothingWasReported) {
  KeptBack reports;
  EXPECT_FALSE(reports.complete());
  EXPECT_TRUE(reports.counts(moeRemoteError, "rank 3: it closed the connection"));
}

}  // namespace
}  // namespace moe::test
