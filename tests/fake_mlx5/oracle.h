// libmlx5 as an oracle. Every request is posted twice: by libmlx5 to its own queue, and by device/queue/mlx5 to a
// shadow of it. Every completion is read twice. Differences are kept as text.
#pragma once

#include <string>
#include <vector>

#include "device/queue/mlx5/completion_queue.h"
#include "fake_mlx5/shadow_queue.h"
#include "fake_mlx5/verbs_queue.h"

namespace moe::test {

enum class Kind { write, writeImm, read, fetchAdd, compareSwap, inlineWrite };

struct Request {
  Kind kind = Kind::write;
  std::uint8_t flags = 0;  // mlx5::kSignalled ...
  mlx5::RemoteAddress remote{};
  mlx5::LocalRange local{};  // atomics: where the value before goes. inlineWrite: unused
  std::uint32_t immediate = 0;
  std::uint64_t add = 0;  // of fetchAdd
  std::uint64_t compare = 0, swap = 0;
  std::vector<std::uint32_t> words = {};  // of inlineWrite
};

enum class Interface { postSend, wrBuilder };

// Planted in what device/queue/mlx5 wrote, to see that the oracle finds it.
enum class Mistake { none, segmentCount, inlineBit, operandsSwapped, immediateOrder, recordWord, doorbellQueuePair };

class Oracle {
 public:
  Oracle();

  // Posts a batch with one ring, and compares WQEs, doorbell record and doorbell. Returns the index of its last WQE.
  std::uint64_t post(Interface interface, const std::vector<Request>& batch, Mistake mistake = Mistake::none);
  // The adapter completes; compares what both read, and that neither has seen anything before. `expected.queuePair` and
  // `userIndex` are filled in.
  void complete(mlx5::Completion expected);
  // For a completion of a peer's request.
  void postReceive(std::uint64_t id);

  const std::vector<std::string>& differences() const { return differences_; }
  // Of this process. The second without those of oracles that a mistake was planted for.
  static std::uint64_t comparisons();
  static std::uint64_t unexpectedDifferences();

  const mlx5::SendQueue& queue() const { return queue_; }
  VerbsQueue& verbs() { return verbs_; }
  mlx5::LocalRange local(std::uint32_t bytes);

 private:
  void postVerbs(Interface interface, const std::vector<Request>& batch);
  void postOwn(const std::vector<Request>& batch);
  void plant(Mistake mistake, std::uint64_t index);
  void clearSlots(std::uint64_t index, std::size_t count);
  std::uint8_t* verbsSlot(std::uint64_t index);
  void compareWqe(std::uint64_t index, const Request& request);
  void compareDoorbell(std::uint64_t lastIndex);
  void compareCompletion(const mlx5::Completion& own, const ibv_wc& verbs, const mlx5::Completion& expected);
  void differ(std::string how);
  void same(const std::string& what, const void* own, const void* verbs, std::size_t bytes);
  void same(const std::string& what, std::uint64_t own, std::uint64_t verbs);

  VerbsQueue verbs_;
  ShadowQueue shadow_;
  const mlx5::SendQueue& queue_ = shadow_.queue();
  std::uint32_t consumedRecord_[2] = {};
  mlx5::CompletionQueue completions_;
  std::uint64_t produced_ = 0;
  std::vector<std::uint64_t> idOfSlot_;  // what libmlx5 is to say of the WQE that begins there
  std::uint64_t nextId_ = 1000, receiveId_ = 0;
  std::vector<std::string> differences_;
  bool planted_ = false;
};

}  // namespace moe::test
