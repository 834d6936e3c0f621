// Holds one signal back from the calling thread, around a call that may raise it: SIGPIPE, or SIGXFSZ, which a write or
// a file's growth raises at the limit of ulimit -f. Either would end a program that does not expect it. The call then
// fails with an errno instead. How the program handles signals does not change.
#pragma once

#include <pthread.h>

#include <cerrno>
#include <csignal>
#include <ctime>

namespace moe {

class SignalHeld {
 public:
  explicit SignalHeld(int signal) noexcept {
    sigemptyset(&held_);
    sigaddset(&held_, signal);
    sigset_t pending;
    sigpending(&pending);
    holds_ = sigismember(&pending, signal) == 0 && ::pthread_sigmask(SIG_BLOCK, &held_, &before_) == 0;
  }
  ~SignalHeld() {
    if (holds_) ::pthread_sigmask(SIG_SETMASK, &before_, nullptr);
  }
  SignalHeld(const SignalHeld&) = delete;
  SignalHeld& operator=(const SignalHeld&) = delete;

  // Call it after a call that raised the signal. Keeps errno.
  void forget() noexcept {
    const int error = errno;
    constexpr timespec kAtOnce{};
    while (holds_ && ::sigtimedwait(&held_, nullptr, &kAtOnce) < 0 && errno == EINTR) {
    }
    errno = error;
  }

 private:
  sigset_t held_, before_;
  bool holds_;
};

}  // namespace moe
