// libmlx5 as an oracle. Every request is posted twice: by libmlx5 to its own queue, and by device/queue/mlx5 to a
// shadow of it. Every completion is read twice. Differences are collected as text.
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
  mlx5::LocalRange local{};  // atomics: place for the previous value. inlineWrite: unused
  std::uint32_t immediate = 0;
  std::uint64_t add = 0;  // of fetchAdd
  std::uint64_t compare = 0, swap = 0;
  std::vector<std::uint32_t> words = {};  // of inlineWrite
};

enum class Interface { postSend, wrBuilder };

// Mistakes planted in what device/queue/mlx5 wrote, to show that the oracle finds them.
enum class Mistake { none, segmentCount, inlineBit, operandsSwapped, immediateOrder, recordWord, doorbellQueuePair };

class Oracle {
 public:
  Oracle();

  // Posts a batch with one ring, and compares WQEs, doorbell record and doorbell. Returns the index of its last WQE.
  std::uint64_t post(Interface interface, const std::vector<Request>& batch, Mistake mistake = Mistake::none);
  // Writes a completion as the adapter would, and compares how both sides read it. Neither may have seen it before.
  // Fills in `expected.queuePair` and `userIndex`.
  void complete(mlx5::Completion expected);
  // For completions of a peer's request.
  void postReceive(std::uint64_t id);

  const std::vector<std::string>& differences() const { return differences_; }
  // Counts of this process. The second one leaves out oracles with a planted mistake.
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
  std::vector<std::uint64_t> idOfSlot_;  // the value that libmlx5 must return for the WQE that starts in this slot
  std::uint64_t nextId_ = 1000, receiveId_ = 0;
  std::vector<std::string> differences_;
  bool planted_ = false;
};

}  // namespace moe::test
