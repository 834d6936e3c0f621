// A stack to run on, and the switch between two of them. Not thread-safe; used by the simulator only.
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
  // Runs `body` when it is switched to for the first time. `body` must not return.
  explicit Fiber(std::function<void()> body);
  Fiber(const Fiber&) = delete;
  Fiber& operator=(const Fiber&) = delete;

  // Leaves `from`, which is running, and goes on where this fiber left.
  void switchFrom(Fiber& from);

 private:
  static void enter(unsigned low, unsigned high);

  static constexpr std::size_t kStackBytes = 128 << 10;
  std::unique_ptr<std::byte[]> stack_;
  std::function<void()> body_;
  ucontext_t context_{};
  [[maybe_unused]] jmp_buf jump_{};  // with the address sanitizer neither of these two is used
  [[maybe_unused]] bool started_ = false;
  [[maybe_unused]] void* fakeStack_ = nullptr;  // of the address sanitizer
  const void* bottom_ = nullptr;
  std::size_t size_ = 0;
};

}  // namespace moe::sim
