// One end of a connection through the software adapter, with the threads that it needs besides its posters.
#pragma once

#include <array>
#include <atomic>
#include <cstring>
#include <functional>
#include <thread>

#include "fake_mlx5/shadow_queue.h"
#include "fake_mlx5/soft_adapter.h"

namespace moe::test {

class Endpoint {
 public:
  Endpoint(SoftAdapter& adapter, std::uint32_t queuePair, std::uint32_t slots, std::uint32_t cqes = 16,
           std::uint64_t begin = 0)
      : send_(slots, queuePair, begin), completions_{entries_.data(), cqes, record_, 0} {
    if (cqes > entries_.size()) throw std::runtime_error("more completions than there is room for");
    std::memset(entries_.data(), 0xf0, sizeof(entries_));  // the driver's initial state
    adapter.addQueuePair(send_.queue(), completions_);
  }

  const mlx5::SendQueue& queue() const { return send_.queue(); }
  bool poll(mlx5::Completion* completion) { return mlx5::poll(HostQueueMemory(), completions_, completion); }

  // Takes out the waiting completions, at most one round of the queue, and gives their slots back. Returns false after
  // a failure, which it keeps.
  bool drain() {
    mlx5::Completion completion{};
    for (std::uint32_t i = 0; i < completions_.count && poll(&completion); ++i) {
      if (completion.failed()) {
        failure = completion;
        return false;
      }
      if (completion.opcode == mlx5::CqeOpcode::requester) mlx5::retire(HostQueueMemory(), queue(), completion);
    }
    return true;
  }

  mlx5::Completion failure{};

 private:
  ShadowQueue send_;
  std::array<mlx5::Cqe, 16> entries_;
  std::uint32_t record_[2] = {};
  mlx5::CompletionQueue completions_;
};

// Calls `turn` repeatedly on its own thread until destruction.
class Repeater {
 public:
  explicit Repeater(std::function<void()> turn)
      : thread_([this, turn = std::move(turn)] {
          while (!stop_.load(std::memory_order_relaxed)) {
            turn();
            std::this_thread::yield();
          }
        }) {}
  ~Repeater() {
    stop_ = true;
    thread_.join();
  }

 private:
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

}  // namespace moe::test
