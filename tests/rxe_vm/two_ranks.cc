#include "rxe_vm/two_ranks.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include <array>
#include <filesystem>
#include <thread>

#include "device/policy/host/post.h"
#include "device/policy/host/queue_memory.h"
#include "transport/transports.h"

namespace moe::test {
namespace {

constexpr int kAckTimeout = 15;  // 0.13 s, seven times: an emulated machine is slow to answer

std::uint64_t loadWord(const std::uint64_t* word) {
  return HostQueueMemory().load(word);
}

template <class Condition>
bool waitFor(Condition holds) {
  const Deadline deadline = Deadline::after(std::chrono::milliseconds(kTimeoutMs));
  while (!holds()) {
    if (deadline.expired()) return false;
    std::this_thread::sleep_for(std::chrono::microseconds(50));
  }
  return true;
}

// Runs one rank in the child process. Ends with _exit, so that nothing of the test program is destroyed here.
[[noreturn]] void live(int rank, Fd socket, const std::function<void(RxeRank&)>& body) {
  int status = 0;
  try {
    RxeRank self(rank, std::move(socket));
    body(self);
  } catch (const std::exception& error) {
    fmt::print(stderr, "rank {}: {}\n", rank, error.what());
    status = 1;
  }
  std::fflush(nullptr);
  ::_exit(status);
}

std::array<int, 2> runRanks(const std::function<void(RxeRank&)>& body) {
  std::fflush(nullptr);
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_STREAM, 0, ends) != 0) throw systemError("socketpair");
  std::array<pid_t, 2> children{};
  for (int rank = 0; rank < 2; ++rank) {
    children[static_cast<std::size_t>(rank)] = ::fork();
    if (children[static_cast<std::size_t>(rank)] != 0) continue;
    ::close(ends[1 - rank]);
    live(rank, Fd(ends[rank]), body);
  }
  ::close(ends[0]);
  ::close(ends[1]);
  std::array<int, 2> statuses{};
  for (std::size_t rank = 0; rank < 2; ++rank) ::waitpid(children[rank], &statuses[rank], 0);
  return statuses;
}

}  // namespace

void require(bool condition, const std::string& what) {
  if (!condition) throw std::runtime_error(what);
}

RxeRank::RxeRank(int rank, Fd socket)
    : rank_(rank),
      socket_(std::move(socket)),
      log_({}, rank, 2),
      backend_(makeHostBackend()),
      window_(backend_->allocateHostVisible(kWindowBytes)) {}

void RxeRank::makeTransport() {
  topology::RdmaSettings rdma;
  rdma.nics = fmt::format("rxe{}", rank_);
  rdma.ackTimeout = kAckTimeout;
  const auto fail = [this](moeResult_t, const std::string& sentence) {
    if (failed()) return;
    failure_ = sentence;
    HostQueueMemory().publish(&orders_.abort, std::uint64_t{1});
  };
  transport_ =
      makeVerbsTransport({rank_, 2, {other()}, window(), kWindowBytes, *backend_, log_, orders_, "", rdma, fail});
}

void RxeRank::connect(const std::function<void(CardBytes*)>& change) {
  const CardBytes mine = transport_->card();
  std::vector<CardBytes> cards(2, mine);
  CardBytes& theirs = cards[static_cast<std::size_t>(other())];
  theirs = exchange(mine);
  if (change) change(&theirs);
  transport_->connect(cards, Deadline::after(std::chrono::milliseconds(kTimeoutMs)));
}

void RxeRank::finish() {
  transport_->finish(Deadline::after(std::chrono::milliseconds(kTimeoutMs)), [] { return false; });
}

CardBytes RxeRank::exchange(const CardBytes& mine) {
  CardBytes theirs(mine.size());
  require(::send(socket_.get(), mine.data(), mine.size(), 0) == static_cast<ssize_t>(mine.size()), "cannot send");
  require(::recv(socket_.get(), theirs.data(), theirs.size(), MSG_WAITALL) == static_cast<ssize_t>(theirs.size()),
          "the other rank has left");
  return theirs;
}

void RxeRank::meet() {
  exchange({0});
}

void RxeRank::post(const Put& put) {
  const RemoteView view = transport_->view();
  const HostQueueMemory memory;
  require(moe::post(memory, view, put, WaitLimit{memory.nanoseconds(), &orders_}), "a put was not taken: " + failure_);
}

void RxeRank::putRow(std::uint64_t target, std::uint64_t source, std::uint32_t bytes) {
  post(putBytes(other(), target, source, bytes));
}

void RxeRank::putWord(std::uint64_t target, std::uint64_t value) {
  post(moe::putWord(other(), target, value));
}

void RxeRank::waitForWord(std::uint64_t offset, std::uint64_t atLeast) {
  const auto* word = reinterpret_cast<const std::uint64_t*>(window() + offset);
  const bool there = waitFor([&] { return loadWord(word) >= atLeast || loadWord(&orders_.abort) != 0; });
  require(there && loadWord(&orders_.abort) == 0, fmt::format("the word {} did not come: {}", atLeast, failure_));
}

std::string RxeRank::failure() {
  require(waitFor([&] { return loadWord(&orders_.abort) != 0; }), "there was no failure");
  return failure_;
}

std::string RxeRank::inventory() {
  const auto count = [](const char* directory) {
    return std::distance(std::filesystem::directory_iterator(directory), {});
  };
  // /proc still lists a thread for a moment after it was joined.
  const Deadline deadline = Deadline::after(std::chrono::seconds(2));
  while (count("/proc/self/task") > 1 && !deadline.expired()) std::this_thread::yield();
  return fmt::format("{} descriptors, {} threads", count("/proc/self/fd"), count("/proc/self/task"));
}

void runTwoRanks(const std::function<void(RxeRank&)>& body) {
  EXPECT_EQ(runRanks(body), (std::array<int, 2>{0, 0}));
}

void runRankAndVictim(const std::function<void(RxeRank&)>& body) {
  EXPECT_EQ(runRanks(body)[0], 0);
}

}  // namespace moe::test
