// Turns puts into RDMA writes: queue pairs for each peer, requests in chains, completions. It has no threads. One
// thread at a time uses it.
#pragma once

#include <array>
#include <optional>
#include <string>
#include <vector>

#include "device/queue/put.h"
#include "transport/rdma/adapter.h"
#include "transport/rdma/card.h"
#include "transport/rdma/send_budget.h"
#include "transport/rdma/send_failure.h"

namespace moe::verbs {

// One connection with a rank.
struct PeerQueue {
  int rank, connection;
  QueuePair pair;
  std::uint64_t window, windowBytes;  // the peer's
  CardRail rail;                      // the peer's adapter
};

// Describes a queue pair's first completion with an error. `status` is libibverbs's text for it.
SendFailure describeFailure(int rank, const char* status, const ibv_wc& completion);

// This rank's window.
struct SendSource {
  std::uint8_t* window;
  std::size_t bytes;
  std::uint32_t key;
};

class Sender {
 public:
  // The most requests between two flushes.
  static constexpr std::size_t kChain = 64;

  // `connections`: the number with each rank.
  Sender(const Adapter& adapter, SendSource source, ibv_cq* completions, int depth, int nranks, int connections);

  void add(PeerQueue queue);
  const std::vector<PeerQueue>& queues() const { return queues_; }
  // The rank that a queue pair leads to, or -1.
  int rankOf(std::uint32_t queueNumber) const;

  // Prepares requests for the put. Returns false if there is no room for all of it, and `put` is then the rest. A put
  // that no step may post (to another rank or place) becomes the failure.
  bool offer(Put* put);
  // Posts a request without data. It completes when the peer's adapter has answered.
  void probe(std::size_t queue);
  // Posts the prepared requests.
  void flush();
  // Looks for completions. Returns whether there were any.
  bool poll();

  bool idle() const { return count_ == 0 && waitsFor() < 0; }             // everything posted has completed
  int waitsFor() const;                                                   // a rank with posted requests, or -1
  const std::optional<SendFailure>& failure() const { return failure_; }  // the first one

 private:
  // A request in preparation, with what it points to.
  struct Request {
    ibv_send_wr work;
    ibv_sge piece;
    std::uint64_t word;
  };
  // The chain of one queue pair, in preparation.
  struct Chain {
    Request* first = nullptr;
    Request* last = nullptr;
  };

  bool hasRoom(std::size_t queue) const { return count_ < kChain && !budgets_[queue].full(); }
  bool mayPost(const Put& put, std::size_t queue) const;
  Request& append(std::size_t queue);
  void offerWord(std::size_t queue, const Put& put);
  void offerPiece(std::size_t queue, Put* put);
  void signal(std::size_t queue, Request& request);
  void post(std::size_t queue);
  void complete(const ibv_wc& completion);
  void fail(SendFailure failure);

  const Adapter& adapter_;
  SendSource source_;
  ibv_cq* completions_;
  int depth_;
  int connections_;
  std::vector<int> indexOf_;  // [nranks][connections]: in the lists below, or -1
  std::vector<PeerQueue> queues_;
  std::vector<SendBudget> budgets_;
  std::vector<Chain> chains_;
  std::vector<std::size_t> touched_;  // queues that have a chain
  std::array<Request, kChain> requests_{};
  std::size_t count_ = 0;
  std::optional<SendFailure> failure_;
};

}  // namespace moe::verbs
