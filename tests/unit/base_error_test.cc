// Exceptions, as other ranks receive them.
#include <gtest/gtest.h>

#include "base/error.h"

namespace moe::test {
namespace {

template <class Thrown>
Error toldOf(int rank, const Thrown& thrown) {
  try {
    throw thrown;
  } catch (...) {
    return currentErrorOf(rank);
  }
}

TEST(Error, TellsOtherRanksWhoseItIs) {
  EXPECT_STREQ(toldOf(3, systemError("poll", ENOMEM)).what(), "rank 3: poll: Cannot allocate memory");
  EXPECT_EQ(toldOf(3, systemError("poll", ENOMEM)).result(), moeSystemError);
  EXPECT_STREQ(toldOf(3, Error(moeRemoteError, "rank 5 has died")).what(), "rank 5 has died");
  EXPECT_STREQ(toldOf(3, Error(moeTimeout, "ranks 5, 6 did not join")).what(), "ranks 5, 6 did not join");
  EXPECT_STREQ(toldOf(3, std::bad_alloc()).what(), "rank 3: out of host memory");
  EXPECT_EQ(toldOf(3, std::bad_alloc()).result(), moeSystemError);
  EXPECT_STREQ(toldOf(3, std::logic_error("a mistake")).what(), "rank 3: a mistake");
  EXPECT_EQ(toldOf(3, 42).result(), moeInternalError);
}

}  // namespace
}  // namespace moe::test
