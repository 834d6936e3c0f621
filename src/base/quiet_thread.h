// Starts a background thread of the library: signals of the program are never delivered to it, and what it throws ends
// it without ending the process.
#pragma once

#include <pthread.h>

#include <csignal>
#include <system_error>
#include <thread>
#include <utility>

#include "base/error.h"

namespace moe {

// While it lives no signal is delivered to the calling thread; a thread that it starts inherits that.
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

// Throws moeSystemError if there can be no thread.
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
