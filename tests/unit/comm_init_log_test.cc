// The log lines of init about memory that nobody asked for.
#include <gtest/gtest.h>

#include "comm/communicator/comm.h"
#include "support/base/log_lines.h"

namespace moe::test {
namespace {

std::string warningOf(int nranks, std::int64_t askedRows, int rowBytes) {
  Config config;
  config.stagingRows = askedRows;
  CommShape shape;
  shape.nranks = nranks;
  shape.tokensMax = 4096;
  shape.rowBytesMax = rowBytes;
  shape.stagingRows = askedRows > 0 ? askedRows : askedRows == 0 ? std::int64_t{nranks} * shape.tokensMax : 0;
  LogLines lines;
  const Log log(lines.options(moeLogWarn), 0, nranks);
  warnOfStaging(log, shape, config);
  return lines.text();
}

TEST(InitLog, WarnsOfALargeStagingAreaThatNobodyChose) {
  const std::string warning = warningOf(64, 0, 16384);
  EXPECT_NE(warning.find("the staging area takes 4096 MiB on each rank, for the case that all 64 ranks send all of "
                         "their 4096 tokens to one rank"),
            std::string::npos)
      << warning;
  EXPECT_NE(warning.find("MOECOMM_STAGING_ROWS"), std::string::npos);
  EXPECT_EQ(warningOf(63, 0, 16384), "") << "few ranks";
  EXPECT_EQ(warningOf(64, 0, 2048), "") << "small rows";
  EXPECT_EQ(warningOf(64, 100000, 16384), "") << "asked for";
  EXPECT_EQ(warningOf(64, -1, 16384), "") << "none";
}

}  // namespace
}  // namespace moe::test
