// Where the processes of a test meet: a file that all of them map. They publish there how to reach them, and wait for
// each other.
#pragma once

#include <fcntl.h>
#include <infiniband/verbs.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <thread>

namespace moe::test {

inline constexpr int kProcessesMax = 8;

// Waits for a condition that is sure to come.
template <class Condition>
void waitFor(const char* what, Condition holds, int seconds = 40) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(seconds);
  while (!holds()) {
    if (std::chrono::steady_clock::now() > end) throw std::runtime_error(std::string("waited too long for ") + what);
    std::this_thread::yield();
  }
}

// How the others can reach a process.
struct Offer {
  std::uint32_t queuePair[kProcessesMax];  // one for each process
  std::uint32_t psn[kProcessesMax];
  union ibv_gid gid;
  std::uint64_t rows, words;  // addresses
  std::uint32_t rowsKey, wordsKey;
};

struct Board {
  std::atomic<std::uint32_t> arrived;
  Offer offer[kProcessesMax];

  void meet(int processes) {
    const std::uint32_t before = arrived.fetch_add(1), count = static_cast<std::uint32_t>(processes);
    waitFor("the other processes", [&] { return arrived.load() >= (before / count + 1) * count; });
  }
};

class BoardFile {
 public:
  explicit BoardFile(const std::string& path) {
    const int fd = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (fd < 0 || ftruncate(fd, sizeof(Board)) != 0) throw std::runtime_error("no board at " + path);
    void* memory = mmap(nullptr, sizeof(Board), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    ::close(fd);
    if (memory == MAP_FAILED) throw std::runtime_error("the board cannot be mapped");
    board_ = static_cast<Board*>(memory);
  }
  ~BoardFile() { munmap(board_, sizeof(Board)); }
  BoardFile(const BoardFile&) = delete;
  BoardFile& operator=(const BoardFile&) = delete;

  Board* operator->() const { return board_; }

 private:
  Board* board_;
};

}  // namespace moe::test
