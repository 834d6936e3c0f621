// One end of a connection by libibverbs: a queue pair with its own completion queue, two ways to post to it, and two
// ways to take completions out.
#pragma once

#include <infiniband/verbs.h>

#include <deque>
#include <memory>

#include <infiniband/mlx5dv.h>

#include "device/policy/host/queue_memory.h"
#include "device/queue/mlx5/completion_queue.h"
#include "device/queue/mlx5/send_queue.h"

namespace moe::test {

struct LinkSettings {
  std::uint32_t slots = 64, completions = 255, receives = 16;
  unsigned timeout = 14, retries = 6, notReadyRetries = 7, reads = 8, readsOfPeer = 8;  // as in verbs
  unsigned access = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;
  bool byQueues = false;  // posts by send_queue.h instead of ibv_post_send
};

struct Operation {
  mlx5::Opcode opcode = mlx5::Opcode::rdmaWrite;
  mlx5::LocalRange local{};
  mlx5::RemoteAddress remote{};
  std::uint64_t operand[2] = {};  // value to add, or to compare and to swap
  std::uint64_t flag = 0;         // written inline if there is no local memory
  std::uint32_t immediate = 0;
  bool signalled = true, fenced = false;
};

struct Done {
  mlx5::Syndrome syndrome = mlx5::Syndrome::none;
  bool received = false;  // a receive; otherwise a completed post
  std::uint32_t immediate = 0, bytes = 0;
};

class Link {
 public:
  Link(ibv_context* context, ibv_pd* pd, const LinkSettings& settings);  // throws std::runtime_error

  std::uint32_t queuePair() const { return qp_->qp_num; }
  ibv_qp* qp() const { return qp_.get(); }
  // Connects to the other end, whose first PSN is `peerPsn`.
  void connect(std::uint32_t peer, const union ibv_gid& peerGid, std::uint32_t psn, std::uint32_t peerPsn);
  void modify(ibv_qp_attr* attributes, int mask);
  ibv_qp_state state() const;

  void post(const Operation& operation);  // waits for room
  void postReceive();
  bool poll(Done* done);
  Done next();    // waits
  void finish();  // waits for all signalled operations; throws if any failed

  // For tests that do the steps of send_queue.h by hand.
  const mlx5::SendQueue& queue() const { return queue_; }

 private:
  template <class Object, int (*kDestroy)(Object*)>
  struct Destroy {
    void operator()(Object* object) const { kDestroy(object); }
  };
  template <class Object, int (*kDestroy)(Object*)>
  using Owner = std::unique_ptr<Object, Destroy<Object, kDestroy>>;

  bool tryPost(const Operation& operation);
  bool submit(const Operation& operation);
  bool pollVerbs(Done* done);
  bool pollQueue(Done* done);
  void pump();

  LinkSettings settings_;
  Owner<ibv_cq, ibv_destroy_cq> cq_;
  Owner<ibv_qp, ibv_destroy_qp> qp_;
  mlx5::SendCounters counters_{};
  std::uint64_t completed_ = 0;
  mlx5::SendQueue queue_{};
  mlx5::CompletionQueue completions_{};
  std::uint64_t waitingFor_ = 0;  // signalled operations not yet seen
  std::deque<Done> done_;
};

void check(bool good, const char* what);

}  // namespace moe::test
