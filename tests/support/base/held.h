// Counts the kernel resources that a process holds, to check that something has released all that it took.
#pragma once

#include <chrono>
#include <cstdio>
#include <filesystem>
#include <thread>

namespace moe::test {

inline std::size_t entriesOf(const char* folder) {
  std::size_t count = 0;
  for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator(folder)) ++count;
  return count;
}

// Descriptors and threads. A sanitizer starts a thread of its own with the program's first thread. Call settle() before
// the first comparison, so that this thread exists.
struct Held {
  std::size_t descriptors = entriesOf("/proc/self/fd"), threads = entriesOf("/proc/self/task");

  bool isWithin(const Held& other) const { return descriptors <= other.descriptors && threads <= other.threads; }

  static void settle() {
    std::thread([] {}).join();
  }
};

// True if no more is held than before. Waits a while, because a joined thread may be visible for another moment.
// Otherwise prints what is still held.
inline bool holdsNoMoreThan(const Held& before) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(2);
  while (!Held().isWithin(before) && std::chrono::steady_clock::now() < end) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  const Held now;
  if (now.isWithin(before)) return true;
  std::fprintf(stderr, "held before: %zu descriptors and %zu threads, now: %zu and %zu\n", before.descriptors,
               before.threads, now.descriptors, now.threads);
  return false;
}

}  // namespace moe::test
