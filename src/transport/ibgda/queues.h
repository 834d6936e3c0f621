// The send queues of a rank's connections, in two forms: for the host, which posts before and after all steps, and for
// steps. The posters' counters are where the steps run. The host has its own counters, which are copied there and back.
#pragma once

#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include <infiniband/mlx5dv.h>

#include "device/policy/host/queue_memory.h"
#include "device/queue/mlx5/completion_queue.h"
#include "device/queue/mlx5/put_queue.h"
#include "topology/dynamic_library.h"
#include "transport/rdma/local_end.h"

namespace moe::ibgda {

// libmlx5, loaded at run time. It gives the addresses of the queues that it has made for libibverbs.
struct DirectLibrary {
  // Throws moeUnsupported if the library or one of its functions is missing.
  static std::shared_ptr<const DirectLibrary> load(const std::string& name = "libmlx5.so.1");

  explicit DirectLibrary(const std::string& name) : file(name.c_str()) {}

  topology::DynamicLibrary file;
  decltype(&::mlx5dv_is_supported) isSupported = nullptr;
  decltype(&::mlx5dv_init_obj) initObject = nullptr;
};

// Which side writes the adapter's doorbell registers for steps.
enum class Ringer { steps, thread };

class Queues {
 public:
  // The number of requests that a queue pair is made for. libmlx5 gives each request this many slots, as if it were the
  // largest kind.
  static constexpr int kRequests = 256, kSlotsPerRequest = 4;

  // Uses the queue pairs of `end`, which outlive this. Throws moeUnsupported if they cannot be posted to in this way.
  Queues(const RemoteSetup& setup, const DirectLibrary& library, verbs::LocalEnd& end);
  Queues(const Queues&) = delete;
  Queues& operator=(const Queues&) = delete;

  // Takes what peers have reported about their windows, in the order of setup.peers. A rank has one queue per
  // connection.
  void aim(const std::vector<verbs::Card>& peers);
  // From now on the queues belong to steps. The host may not post until takeBack.
  void hand();
  // For use when no step runs any more. Returns false if a step has left without posting what it had reserved.
  bool takeBack();

  RemoteView view() const;
  Ringer ringer() const { return ringer_; }
  const std::string& how() const { return how_; }  // which side rings, and why
  bool fellBack() const { return fellBack_; }      // steps were meant to ring, but cannot

  // ---- For the host
  // Posts a word to every peer, by its first connection or by each.
  template <class WordTo>
  bool postWords(WordTo wordTo, bool byEach, const WaitLimit& limit);
  // A peer that has not taken everything that the host has posted; -1: none.
  int waitsFor() const;

  // ---- For the thread that owns the completion queues, one for each adapter
  int rails() const { return static_cast<int>(completions_.size()); }
  mlx5::CompletionQueue& completions(int rail) { return completions_[static_cast<std::size_t>(rail)]; }
  std::size_t count() const { return queues_.size(); }
  // The index of an adapter's queue pair, and the rank that it leads to; -1 for none.
  int indexOf(int rail, std::uint32_t queuePair) const;
  int rankOf(int rail, std::uint32_t queuePair) const;
  const mlx5::SendQueue& queue(std::size_t i) const { return queues_[i].send; }
  // Rings for steps if they have asked for it since the last call. Returns whether they had.
  bool ringFor(std::size_t i);
  // True if the adapter was told of slots that it has not finished.
  bool anyUnderWay() const;

 private:
  // One cache line each, because different posters write them.
  struct alignas(64) Counters {
    mlx5::SendCounters counters;
  };
  struct alignas(64) Word {
    std::uint64_t value;
  };

  void show(const DirectLibrary& library, const verbs::LocalEnd& end, std::size_t pair, ibv_qp* made);
  void showCompletions(const DirectLibrary& library, const verbs::LocalEnd& end, int rail);
  void share();
  void chooseRinger();
  void shareRegisters();
  Word* completedWords() const { return reinterpret_cast<Word*>(completedMemory_.get()); }
  Word* bellWords() const { return reinterpret_cast<Word*>(bellMemory_.get()); }

  int rankAt(std::size_t i) const { return setup_.peers[i / connections_]; }

  const RemoteSetup& setup_;
  std::size_t connections_;                                      // with each rank
  std::vector<mlx5::PutQueue> queues_;                           // [setup.peers][connections], as the host sees them
  std::vector<Counters> counters_;                               // the host's own
  std::vector<std::unordered_map<std::uint32_t, int>> indexOf_;  // by adapter: each numbers its own queue pairs
  std::vector<mlx5::CompletionQueue> completions_;               // by adapter
  Ringer ringer_ = Ringer::steps;
  std::string how_;
  bool fellBack_ = false;
  std::vector<std::uint64_t> rung_;  // the last doorbell that steps have asked the thread for
  std::vector<Memory> shared_;       // the queues' own memory, made reachable to steps
  Memory completedMemory_;           // completions as the posters see them; host-visible
  Memory bellMemory_;                // doorbells for the thread; host-visible
  Memory countersMemory_, table_;    // where the steps run: counters, PutQueue [nranks][connections]
};

template <class WordTo>
bool Queues::postWords(WordTo wordTo, bool byEach, const WaitLimit& limit) {
  for (std::size_t i = 0; i < queues_.size(); i += byEach ? 1 : connections_) {
    const auto putOf = [&](int) { return wordTo(rankAt(i)); };
    if (!mlx5::postRun(HostQueueMemory(), queues_[i], 0, 1, putOf, limit)) return false;
  }
  return true;
}

}  // namespace moe::ibgda
