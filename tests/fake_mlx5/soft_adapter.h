// An adapter in software. It takes doorbells, reads the queues of device/queue/mlx5 as strictly as possible, moves data
// between queue pairs of this process, and writes completions. It reports a defective queue as a violation. A request
// that a real adapter refuses, such as one whose key does not cover the memory, completes with that error.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "device/queue/mlx5/completion_queue.h"
#include "device/queue/mlx5/send_queue.h"
#include "fake_mlx5/wqe_reader.h"

namespace moe::test {

inline constexpr unsigned kLocalWrite = 1, kRemoteWrite = 2, kRemoteRead = 4, kRemoteAtomic = 8;  // as in verbs

class SoftAdapter {
 public:
  // A WQE is executed no earlier than this many steps after its doorbell, and must not change in between.
  explicit SoftAdapter(std::uint64_t delaySteps = 0) : delaySteps_(delaySteps) {}

  // The key serves as local and as remote key.
  std::uint32_t registerMemory(const void* memory, std::size_t bytes, unsigned access);
  // The queue may have been in use. The adapter starts behind its last completion.
  void addQueuePair(const mlx5::SendQueue& send, const mlx5::CompletionQueue& completions);
  void connect(std::uint32_t queuePair, std::uint32_t other);

  // Steps all queue pairs once. One thread at a time may call it.
  void step();

  const std::vector<std::string>& violations() const { return violations_; }
  void ignoreNextDoorbell() { ignored_ = 1; }

 private:
  struct Region {
    std::uint64_t address, bytes;
    unsigned access;
  };
  struct QueuePair {
    mlx5::SendQueue send;
    mlx5::CompletionQueue completions;
    std::uint64_t executed, end;     // in slots: executed, and announced by doorbells
    std::uint64_t dueStep;           // step from which on the latest announcement may be executed
    std::vector<std::uint8_t> told;  // the queue as it was at the doorbell
    std::uint64_t produced;          // completions
    std::uint16_t received;          // receive WQEs consumed
    std::uint32_t peer;
    bool failed;
  };

  void takeDoorbell(QueuePair& pair);
  void acceptRecord(QueuePair& pair, std::uint16_t doorbellIndex);
  void executeNext(QueuePair& pair);
  void readSlots(const QueuePair& pair, std::uint64_t index, std::uint8_t* image) const;
  void poison(const QueuePair& pair, std::uint64_t index, std::uint64_t slots);

  mlx5::Syndrome carryOut(QueuePair& pair, const Work& work);
  mlx5::Syndrome receive(QueuePair& peer, const Work& work);
  bool covers(std::uint32_t key, std::uint64_t address, std::uint64_t bytes, unsigned access) const;
  void complete(QueuePair& pair, mlx5::Completion completion);
  void note(const QueuePair& pair, std::uint64_t index, const std::string& what);

  std::uint64_t delaySteps_, steps_ = 0;
  int ignored_ = 0;
  std::map<std::uint32_t, Region> regions_;
  std::map<std::uint32_t, QueuePair> pairs_;
  std::vector<std::string> violations_;
};

}  // namespace moe::test
