// A stack to run on, and the switch between two of them. Not thread-safe. Only the simulator uses it.
#pragma once

#include <setjmp.h>
#include <ucontext.h>

#include <cstddef>
#include <functional>
#include <memory>

namespace moe::sim {

class Fiber {
 public:
  Fiber() = default;  // the thread's own stack
  // Runs `body` when it is first switched to. `body` must not return.
  explicit Fiber(std::function<void()> body);
  Fiber(const Fiber&) = delete;
  Fiber& operator=(const Fiber&) = delete;

  // Suspends `from`, which is running, and resumes this fiber where it was suspended.
  void switchFrom(Fiber& from);

 private:
  static void enter(unsigned low, unsigned high);

  static constexpr std::size_t kStackBytes = 128 << 10;
  std::unique_ptr<std::byte[]> stack_;
  std::function<void()> body_;
  ucontext_t context_{};
  [[maybe_unused]] jmp_buf jump_{};  // unused with AddressSanitizer, like its neighbour
  [[maybe_unused]] bool started_ = false;
  [[maybe_unused]] void* fakeStack_ = nullptr;  // for AddressSanitizer
  const void* bottom_ = nullptr;
  std::size_t size_ = 0;
};

}  // namespace moe::sim
