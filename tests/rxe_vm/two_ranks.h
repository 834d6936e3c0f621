// Two ranks in processes of their own. Rank r has the device rxe<r>. A test forks them and ends when both have ended.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "backend/backend.h"
#include "base/fd.h"
#include "transport/remote.h"

namespace moe::test {

inline constexpr std::uint64_t kTimeoutMs = 20000;  // of each wait

// One of the ranks, inside its process. Errors are thrown.
class RxeRank {
 public:
  static constexpr std::size_t kWindowBytes = std::size_t{64} << 20;

  RxeRank(int rank, Fd socket);

  int rank() const { return rank_; }
  int other() const { return 1 - rank_; }
  std::uint8_t* window() { return window_.get(); }

  // makeTransport makes the transport, then connect exchanges the cards. `change` may alter the other rank's card, so
  // that a test can pretend a difference.
  void makeTransport();
  void connect(const std::function<void(CardBytes*)>& change = {});
  RemoteTransport& transport() { return *transport_; }
  void finish();
  void leave() { transport_.reset(); }

  // Posts a put to the other rank.
  void putRow(std::uint64_t target, std::uint64_t source, std::uint32_t bytes);
  void putWord(std::uint64_t target, std::uint64_t value);
  void waitForWord(std::uint64_t offset, std::uint64_t atLeast);

  // Returns when the other rank has called it too.
  void meet();
  // Waits for the transport's first failure and returns it.
  std::string failure();
  bool failed() const { return orders_.abort != 0; }
  // The threads and open descriptors of this process, after its threads were joined.
  static std::string inventory();

 private:
  void post(const Put& put);
  CardBytes exchange(const CardBytes& mine);

  int rank_;
  Fd socket_;
  Log log_;
  std::unique_ptr<Backend> backend_;
  Memory window_;
  std::string failure_;
  WaitOrders orders_{0, kTimeoutMs * 1000000};  // its abort word is set after failure_
  std::unique_ptr<RemoteTransport> transport_;
};

void require(bool condition, const std::string& what);

// Expects both bodies to return.
void runTwoRanks(const std::function<void(RxeRank&)>& body);
// Expects that of rank 0 only. Rank 1 may end in any way.
void runRankAndVictim(const std::function<void(RxeRank&)>& body);

}  // namespace moe::test
