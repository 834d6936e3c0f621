#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <future>
#include <new>
#include <thread>

#include "comm/communicator/error_state.h"

namespace moe::test {
namespace {

constexpr auto kNothing = [] {};

TEST(ErrorState, KeepsTheFirstFailure) {
  ErrorState errors;
  int told = 0;
  EXPECT_TRUE(errors.fail(moeRemoteError, "rank 3 has ended", [&] { ++told; }));
  EXPECT_FALSE(errors.fail(moeTimeout, "rank 4 does not answer", [&] { ++told; }));
  errors.refuse("topk is 0");
  EXPECT_EQ(errors.result(), moeRemoteError);
  EXPECT_STREQ(errors.text(), "rank 3 has ended");
  EXPECT_EQ(told, 1);
}

TEST(ErrorState, ARefusalIsNoFailure) {
  ErrorState errors;
  errors.refuse("topk is 0");
  EXPECT_EQ(errors.result(), moeSuccess);
  EXPECT_EQ(errors.sentence(), "topk is 0");
}

TEST(ErrorState, IsSeenOnlyWhenPeersHaveBeenTold) {
  ErrorState errors;
  moeResult_t seen = moeInternalError;
  errors.fail(moeRemoteError, "", [&] { seen = errors.result(); });
  EXPECT_EQ(seen, moeSuccess);
}

TEST(ErrorState, FailsWithoutASentenceToo) {
  ErrorState errors;
  EXPECT_TRUE(errors.fail(moeRemoteError, "", [] { throw std::bad_alloc(); }));
  EXPECT_EQ(errors.result(), moeRemoteError);
}

TEST(ErrorState, TellsNobodyAfterItsEnd) {
  ErrorState errors;
  errors.stopTelling();
  bool told = false;
  EXPECT_TRUE(errors.fail(moeRemoteError, "", [&] { told = true; }));
  EXPECT_FALSE(told);
  EXPECT_EQ(errors.result(), moeRemoteError);
}

// Telling uses the bootstrap, which ends right after stopTelling().
TEST(ErrorState, WaitsForWhatIsBeingTold) {
  ErrorState errors;
  std::promise<void> begun, go;
  std::atomic<bool> told = false;
  std::thread teller([&] {
    errors.fail(moeRemoteError, "", [&] {
      begun.set_value();
      go.get_future().wait();
      told = true;
    });
  });
  begun.get_future().wait();
  auto stopped = std::async(std::launch::async, [&] {
    errors.stopTelling();
    return told.load();
  });
  EXPECT_EQ(stopped.wait_for(std::chrono::milliseconds(20)), std::future_status::timeout);
  go.set_value();
  EXPECT_TRUE(stopped.get());
  teller.join();
}

Deadline in(std::chrono::milliseconds time) {
  return Deadline::after(time);
}

TEST(ErrorState, OfALateWaitIsSeenAtOnceAndItsSentenceIsWaitedFor) {
  ErrorState errors;
  errors.suspect(moeTimeout, "rank 1 did not come", in(std::chrono::seconds(20)));
  EXPECT_EQ(errors.result(), moeTimeout);
  auto text = std::async(std::launch::async, [&] { return std::string(errors.text()); });
  EXPECT_EQ(text.wait_for(std::chrono::milliseconds(20)), std::future_status::timeout);
  int told = 0;
  EXPECT_TRUE(errors.fail(moeRemoteError, "rank 2 does not answer", [&] { ++told; }));
  EXPECT_EQ(text.get(), "rank 2 does not answer");
  EXPECT_EQ(errors.result(), moeTimeout) << "what a caller has seen stays";
  EXPECT_FALSE(errors.fail(moeAborted, "aborted", [&] { ++told; }));
  EXPECT_EQ(told, 1);
}

TEST(ErrorState, OfALateWaitKeepsItsSentenceForWantOfABetterOne) {
  ErrorState errors;
  errors.suspect(moeTimeout, "rank 1 did not come", in(std::chrono::milliseconds(20)));
  EXPECT_STREQ(errors.text(), "rank 1 did not come");
}

TEST(ErrorState, ALateWaitAfterAFailureChangesNothing) {
  ErrorState errors;
  errors.fail(moeRemoteError, "rank 2 has died", kNothing);
  errors.suspect(moeTimeout, "rank 1 did not come", in(std::chrono::seconds(20)));
  EXPECT_EQ(errors.result(), moeRemoteError);
  EXPECT_STREQ(errors.text(), "rank 2 has died");
}

TEST(ErrorState, KeepsTextUntilTheNextCall) {
  ErrorState errors;
  errors.refuse("one");
  const char* text = errors.text();
  errors.fail(moeAborted, "two", kNothing);
  EXPECT_STREQ(text, "one");
  EXPECT_STREQ(errors.text(), "two");
}

}  // namespace
}  // namespace moe::test
