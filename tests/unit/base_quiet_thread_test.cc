// Threads of the library leave signals to the program's own threads, even when a thread cannot be started.
#include <gtest/gtest.h>

#include <optional>

#include "base/quiet_thread.h"

namespace moe::test {
namespace {

bool holds(int signal) {
  sigset_t now;
  ::pthread_sigmask(SIG_SETMASK, nullptr, &now);
  return sigismember(&now, signal) != 0;
}

TEST(QuietThread, GetsNoSignals) {
  bool held = false;
  startQuietThread([&] { held = holds(SIGTERM) && holds(SIGINT) && holds(SIGUSR1); }).join();
  EXPECT_TRUE(held);
  EXPECT_FALSE(holds(SIGTERM));
}

TEST(QuietThread, ThatThrowsEndsAlone) {
  startQuietThread([] { throw std::runtime_error("for want of anything better"); }).join();
}

// A thread's function is moved to new memory, which may run out. This one throws when it is moved.
struct NoMemory {
  NoMemory() = default;
  NoMemory(NoMemory&&) { throw std::bad_alloc(); }
  void operator()() {}
};

TEST(QuietThread, ThatCannotStartLeavesSignalsAsTheyWere) {
  try {
    startQuietThread<NoMemory>(NoMemory());
    FAIL() << "it has started";
  } catch (const Error& error) {
    EXPECT_EQ(error.result(), moeSystemError);
    EXPECT_STREQ(error.what(), "cannot start a thread: Cannot allocate memory");
  }
  for (const int signal : {SIGTERM, SIGINT, SIGUSR1}) EXPECT_FALSE(holds(signal)) << signal;
}

}  // namespace
}  // namespace moe::test
