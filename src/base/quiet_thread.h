// Starts a background thread of the library. The thread receives none of the program's signals. An exception ends the
// thread, but not the process.
#pragma once

#include <pthread.h>

#include <csignal>
#include <system_error>
#include <thread>
#include <utility>

#include "base/error.h"

namespace moe {

// While this object lives, the calling thread receives no signals. A thread that it starts inherits that.
class SignalsHeld {
 public:
  SignalsHeld() {
    sigset_t all;
    sigfillset(&all);
    ::pthread_sigmask(SIG_SETMASK, &all, &before_);
  }
  ~SignalsHeld() { ::pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  SignalsHeld(const SignalsHeld&) = delete;
  SignalsHeld& operator=(const SignalsHeld&) = delete;

 private:
  sigset_t before_;
};

// Throws moeSystemError if the thread cannot be started.
template <class Body>
std::thread startQuietThread(Body body) {
  const SignalsHeld held;
  try {
    return std::thread([body = std::move(body)]() mutable {
      try {
        body();
      } catch (...) {  // NOLINT: the body has reported what it could
      }
    });
  } catch (const std::system_error& failure) {
    throw systemError("cannot start a thread", failure.code().value());
  } catch (const std::bad_alloc&) {
    throw systemError("cannot start a thread", ENOMEM);
  }
}

}  // namespace moe
