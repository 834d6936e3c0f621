// The first switch to a fiber enters its saved context with ucontext. Later switches jump, which avoids the system call
// that swapcontext makes for the signal mask. AddressSanitizer must be told of each switch and understands only
// swapcontext.
#ifdef _FEATURES_H
#error "fiber.cc is compiled alone: a header before it has already fortified longjmp"
#endif
#undef _FORTIFY_SOURCE  // the fortified longjmp refuses to change stacks
#include "support/simulator/fiber.h"

#include <cstdint>
#include <utility>

#include "support/base/sanitizers.h"

#if MOE_TEST_ASAN
#include <sanitizer/common_interface_defs.h>
#endif

namespace moe::sim {

Fiber::Fiber(std::function<void()> body) : stack_(new std::byte[kStackBytes]), body_(std::move(body)) {
  getcontext(&context_);
  context_.uc_stack.ss_sp = stack_.get();
  context_.uc_stack.ss_size = kStackBytes;
  context_.uc_link = nullptr;
  const auto self = reinterpret_cast<std::uintptr_t>(this);
  makecontext(&context_, reinterpret_cast<void (*)()>(&Fiber::enter), 2, static_cast<unsigned>(self),
              static_cast<unsigned>(self >> 32));
  bottom_ = stack_.get();
  size_ = kStackBytes;
}

#if MOE_TEST_ASAN

void Fiber::enter(unsigned low, unsigned high) {
  auto* self = reinterpret_cast<Fiber*>(std::uintptr_t{high} << 32 | low);
  __sanitizer_finish_switch_fiber(nullptr, nullptr, nullptr);
  self->body_();
}

void Fiber::switchFrom(Fiber& from) {
  if (from.bottom_ == nullptr) {  // the thread's own stack
    pthread_attr_t attributes;
    void* bottom = nullptr;
    if (pthread_getattr_np(pthread_self(), &attributes) == 0) {
      pthread_attr_getstack(&attributes, &bottom, &from.size_);
      pthread_attr_destroy(&attributes);
    }
    from.bottom_ = bottom;
  }
  __sanitizer_start_switch_fiber(&from.fakeStack_, bottom_, size_);
  swapcontext(&from.context_, &context_);
  __sanitizer_finish_switch_fiber(from.fakeStack_, nullptr, nullptr);
}

#else

void Fiber::enter(unsigned low, unsigned high) {
  auto* self = reinterpret_cast<Fiber*>(std::uintptr_t{high} << 32 | low);
  self->body_();
}

void Fiber::switchFrom(Fiber& from) {
  if (_setjmp(from.jump_) != 0) return;
  if (!std::exchange(started_, true) && stack_ != nullptr) setcontext(&context_);
  _longjmp(jump_, 1);
}

#endif

}  // namespace moe::sim
