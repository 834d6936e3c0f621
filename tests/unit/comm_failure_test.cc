// The failure of a step that ended at its deadline, as callers see it: the failure at once, and later the rank that
// caused it. Ranks are threads, whose steps end as the test says.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <thread>

#include "bootstrap/group/unique_id.h"
#include "comm/handle/calls.h"
#include "unit/forwarding_backend.h"
#include "unit/small_config.h"

namespace moe::test {
namespace {

using SteadyClock = std::chrono::steady_clock;
using namespace std::chrono_literals;

// A backend whose steps only fail.
class FailingBackend final : public ForwardingBackend {
 public:
  explicit FailingBackend(const Failure& failure) : failure_(failure) {}

  moeResult_t launch(Step, const StepParams& params, const LaunchShape&, moeStream_t, std::string*) noexcept override {
    params.comm.state->failuresClaimed = 1;
    Failure& failure = *params.comm.failure;
    failure.fault = failure_.fault;
    failure.phase = failure_.phase;
    failure.peer = failure_.peer;
    std::atomic_ref(failure.ready).store(1, std::memory_order_release);
    return moeSuccess;
  }

 private:
  Failure failure_;
};

Failure lateFor(int rank) {
  Failure failure{};
  failure.fault = Fault::timeout;
  failure.phase = Phase::routeCounts;
  failure.peer = rank;
  return failure;
}
Failure badIndex() {
  Failure failure{};
  failure.fault = Fault::badIndex;
  return failure;
}

std::unique_ptr<Comm> createFailing(int nranks, int rank, const moeUniqueId_t& id, const Failure& failure) {
  return Comm::create(nranks, rank, id, smallConfig(), -1, std::make_unique<FailingBackend>(failure));
}

// A handle whose route fails.
Handle& addHandle(Comm& comm) {
  moeHandleConfig_t shape = MOE_HANDLE_CONFIG_INITIALIZER;
  shape.experts = comm.nranks();
  shape.topk = 1;
  shape.mode = moeModeHt;
  return *comm.add(std::make_unique<Handle>(comm, shape));
}

struct Seen {
  moeResult_t result = moeSuccess;
  std::chrono::duration<double> resultTook{}, textTook{};
  std::string text;
};

// Starts each rank's step `delays[rank]` after its communicator is made. Rank r's wait for rank awaited[r] is late.
// `leaver` leaves when it has seen the result.
std::vector<Seen> seenBy(const std::vector<int>& awaited, const std::vector<std::chrono::milliseconds>& delays,
                         std::size_t leaver = SIZE_MAX) {
  const int nranks = static_cast<int>(awaited.size());
  const moeUniqueId_t id = bootstrap::createUniqueId(20s, "lo");
  std::vector<Seen> seen(awaited.size());
  std::vector<std::thread> ranks;
  for (std::size_t rank = 0; rank < awaited.size(); ++rank) {
    ranks.emplace_back([&, rank] {
      const auto comm = createFailing(nranks, static_cast<int>(rank), id, lateFor(awaited[rank]));
      Handle& handle = addHandle(*comm);
      std::this_thread::sleep_for(delays[rank]);
      moe::route(handle, {nullptr, nullptr, 0}, nullptr);
      const auto begin = SteadyClock::now();
      seen[rank].result = comm->status();
      seen[rank].resultTook = SteadyClock::now() - begin;
      if (rank == leaver) return;
      seen[rank].text = comm->errors().text();
      seen[rank].textTook = SteadyClock::now() - begin;
    });
  }
  for (auto& rank : ranks) rank.join();
  return seen;
}

TEST(CommFailure, OfALateWaitIsSeenAtOnceAndNamesTheEndOfTheChain) {
  // Rank 0's wait is late first. Rank 3's step begins after all ranks have heard of the failure, and sees only that.
  for (const Seen& seen : seenBy({1, 2, 3, 0}, {0ms, 150ms, 300ms, 2500ms})) {
    EXPECT_EQ(seen.result, moeTimeout);
    EXPECT_LT(seen.resultTook.count(), 0.3) << "status() does not wait for the sentence";
    EXPECT_LT(seen.textTook.count(), 2.5);
    EXPECT_NE(seen.text.find("rank 2: rank 3 did not send its counts (moeRoute)"), std::string::npos) << seen.text;
  }
}

// However many threads look at once, none may keep the step's result from the others.
TEST(CommFailure, IsSeenByEveryThreadThatLooks) {
  for (int round = 0; round < 200; ++round) {
    const auto comm = createFailing(1, 0, bootstrap::createUniqueId(20s, "lo"), badIndex());
    Handle& handle = addHandle(*comm);
    std::atomic<bool> hasFailed = false;
    std::array<moeResult_t, 3> seen{};
    std::vector<std::thread> threads;
    for (moeResult_t& result : seen) {
      threads.emplace_back([&] {
        while (!hasFailed) std::this_thread::yield();
        result = comm->status();
      });
    }
    moe::route(handle, {nullptr, nullptr, 0}, nullptr);
    hasFailed = true;
    for (auto& thread : threads) thread.join();
    EXPECT_EQ(std::count(seen.begin(), seen.end(), moeInvalidArgument), 3) << "round " << round;
  }
}

TEST(CommFailure, OfARankThatLeavesAtOnceIsToldToTheOthers) {
  const auto seen = seenBy({1, 0}, {0ms, 1500ms}, 0);
  EXPECT_NE(seen[1].text.find("rank 0: rank 1 did not"), std::string::npos) << seen[1].text;
}

}  // namespace
}  // namespace moe::test
