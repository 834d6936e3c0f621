// Starts a background thread of the library: signals of the program are never delivered to it, and what it throws ends
// it without ending the process.
#pragma once

#include <pthread.h>

#include <csignal>
#include <system_error>
#include <thread>
#include <utility>

#include "base/error.h"

namespace moe::bootstrap {

template <class Body>
std::thread startQuietThread(Body body) {
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, &before);  // the new thread inherits it
  std::thread thread;
  int error = 0;
  try {
    thread = std::thread([body = std::move(body)]() mutable {
      try {
        body();
      } catch (...) {  // NOLINT: the body has reported what it could
      }
    });
  } catch (const std::system_error& failure) {
    error = failure.code().value();
  }
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
  if (error != 0) throw systemError("cannot start a thread", error);
  return thread;
}

}  // namespace moe::bootstrap
