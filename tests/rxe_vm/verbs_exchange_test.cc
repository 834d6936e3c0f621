// The verbs transport from end to end over the kernel's verbs: rows and words between two processes, and every failure
// that Soft-RoCE can show. Runs as root in the machine of run.sh.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <thread>

#include "rxe_vm/two_ranks.h"
#include "transport/rdma/card.h"

namespace moe::test {
namespace {

// The window holds rows to send, then arriving rows, and the words at its end.
constexpr std::uint64_t kHalf = RxeRank::kWindowBytes / 2 - 4096;
constexpr std::uint64_t kWordAt = RxeRank::kWindowBytes - 64;
constexpr std::uint64_t kAnswerAt = RxeRank::kWindowBytes - 128;

std::uint32_t rowBytes(std::uint64_t round, std::uint64_t row) {
  return static_cast<std::uint32_t>(4 + (round * 37 + row * 911) % 1790 * 4);
}
std::uint8_t byteOf(std::uint64_t round, std::uint64_t row, std::uint64_t at, int sender) {
  return static_cast<std::uint8_t>(round * 131 + row * 29 + at * 7 + static_cast<std::uint64_t>(sender) * 101);
}

// The rows of a round lie side by side, at the same offsets in both windows.
template <class Visit>
void forEachRow(std::uint64_t round, std::uint64_t rows, Visit visit) {
  std::uint64_t at = round % 7 * 65536;
  for (std::uint64_t row = 0; row < rows; ++row) {
    visit(row, at, rowBytes(round, row));
    at += rowBytes(round, row);
  }
}

// Checks that the row came from the other rank.
void requireRow(RxeRank& self, std::uint64_t round, std::uint64_t row, std::uint64_t at, std::uint32_t bytes) {
  for (std::uint32_t i = 0; i < bytes; ++i) {
    if (self.window()[at + i] == byteOf(round, row, i, self.other())) continue;
    throw std::runtime_error(fmt::format("round {}, row {}: byte {} is wrong", round, row, i));
  }
}

void fillRow(RxeRank& self, std::uint64_t round, std::uint64_t row, std::uint64_t at, std::uint32_t bytes) {
  for (std::uint32_t i = 0; i < bytes; ++i) self.window()[at + i] = byteOf(round, row, i, self.rank());
}

// Both ranks send at once. A round reuses the places of the rounds before. The answer says that the other rank has
// checked its rows, so the places are free.
void exchangeRounds(RxeRank& self, std::uint64_t rounds, std::uint64_t rows) {
  for (std::uint64_t round = 1; round <= rounds; ++round) {
    forEachRow(round, rows, [&](std::uint64_t row, std::uint64_t at, std::uint32_t bytes) {
      fillRow(self, round, row, at, bytes);
      self.putRow(kHalf + at, at, bytes);
    });
    self.putWord(kWordAt, round);
    self.waitForWord(kWordAt, round);
    forEachRow(round, rows, [&](std::uint64_t row, std::uint64_t at, std::uint32_t bytes) {
      requireRow(self, round, row, kHalf + at, bytes);
    });
    self.putWord(kAnswerAt, round);
    self.waitForWord(kAnswerAt, round);
  }
}

void start(RxeRank& self) {
  self.makeTransport();
  self.connect();
}

void end(RxeRank& self) {
  self.finish();
  self.meet();
  require(!self.failed(), "a failure at the end");
  self.leave();
}

// More puts than the ring has slots, so that its indices wrap around.
TEST(RxeVerbs, RowsAreThereWhenTheirWordIs) {
  runTwoRanks([](RxeRank& self) {
    start(self);
    exchangeRounds(self, 200, 20);
    end(self);
  });
}

// Four threads post far more puts than the queue pair and the ring hold. The receiver learns only that the sender has
// finished.
TEST(RxeVerbs, PostersWaitAndFinishMeansArrived) {
  constexpr std::uint64_t kThreads = 4;
  constexpr std::uint64_t kPuts = 3000;
  const auto valueOf = [](std::uint64_t index) { return index * 0x9e3779b97f4a7c15ULL; };
  runTwoRanks([&](RxeRank& self) {
    start(self);
    std::vector<std::thread> threads;
    for (std::uint64_t thread = 0; thread < kThreads; ++thread) {
      threads.emplace_back([&self, &valueOf, thread] {
        for (std::uint64_t i = thread * kPuts; i < (thread + 1) * kPuts; ++i) {
          *reinterpret_cast<std::uint64_t*>(self.window() + i * 8) = valueOf(i);
          if (i % 3 == 0) self.putWord(kHalf + i * 8, valueOf(i));
          if (i % 3 != 0) self.putRow(kHalf + i * 8, i * 8, 8);
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    self.finish();
    self.meet();
    for (std::uint64_t i = 0; i < kThreads * kPuts; ++i) {
      const bool there = *reinterpret_cast<std::uint64_t*>(self.window() + kHalf + i * 8) == valueOf(i);
      if (!there) throw std::runtime_error(fmt::format("put {} is missing", i));
    }
    end(self);
  });
}

// A Soft-RoCE message has at most 8 MiB.
TEST(RxeVerbs, LargePutsGoInPieces) {
  constexpr std::uint32_t kBytes = (9U << 20) + 12;
  runTwoRanks([](RxeRank& self) {
    start(self);
    fillRow(self, 1, 1, 0, kBytes);
    self.putRow(kHalf, 0, kBytes);
    self.putWord(kWordAt, 1);
    self.waitForWord(kWordAt, 1);
    requireRow(self, 1, 1, kHalf, kBytes);
    end(self);
  });
}

TEST(RxeVerbs, LeavesNothingBehind) {
  runTwoRanks([](RxeRank& self) {
    const auto live = [&self] {
      start(self);
      exchangeRounds(self, 2, 3);
      end(self);
      for (std::uint64_t word : {kWordAt, kAnswerAt}) *reinterpret_cast<std::uint64_t*>(self.window() + word) = 0;
      self.meet();
    };
    live();
    const std::string before = RxeRank::inventory();
    for (int i = 0; i < 2; ++i) live();
    require(RxeRank::inventory() == before, before + ", then " + RxeRank::inventory());
  });
}

TEST(RxeVerbs, AWrongKeyNamesTheRank) {
  runTwoRanks([](RxeRank& self) {
    self.makeTransport();
    self.connect([&](CardBytes* theirs) {
      if (self.rank() != 0) return;
      verbs::Card card = verbs::decode(*theirs, 1, 2);
      card.rails.at(0).dataKey ^= 0x5500;
      *theirs = verbs::encode(card);
    });
    self.meet();  // rank 1 must be connected, because the wrong write breaks its end too
    if (self.rank() == 0) {
      self.putRow(kHalf, 0, 4096);
      const std::string why = self.failure();
      require(why.find("rank 0: RDMA write to rank 1 failed: remote access error (queue pair 0x") == 0, why);
      self.finish();
    }
    self.meet();
    self.leave();
  });
}

TEST(RxeVerbs, APutBesidesTheWindowIsRefused) {
  runTwoRanks([](RxeRank& self) {
    start(self);
    self.putRow(RxeRank::kWindowBytes - 4, 0, 8);
    const std::string why = self.failure();
    require(why.find("a put of 8 bytes to rank") != std::string::npos, why);
    self.meet();
    self.leave();
  });
}

// Rank 1 dies while puts are on their way.
TEST(RxeVerbs, AKilledPeerIsNamed) {
  runRankAndVictim([](RxeRank& self) {
    start(self);
    exchangeRounds(self, 5, 5);
    self.meet();
    if (self.rank() == 1) ::kill(::getpid(), SIGKILL);
    const auto begin = std::chrono::steady_clock::now();
    try {
      for (std::uint64_t i = 0; i < 20000 && !self.failed(); ++i) self.putRow(kHalf, 0, 64);
    } catch (const std::exception&) {  // the ring is no longer emptied
    }
    const std::string why = self.failure();
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
    require(why.find("rank 0: RDMA write to rank 1 failed: transport retry counter exceeded") == 0, why);
    require(seconds.count() < 10, "it took too long");
    fmt::print("noticed after {:.2f} s: {}\n", seconds.count(), why);
    self.finish();
    self.leave();
  });
}

TEST(RxeVerbs, APeerThatDoesNotConnectIsNamed) {
  runTwoRanks([](RxeRank& self) {
    self.makeTransport();
    const bool refuses = self.rank() == 1;
    std::string why;
    try {
      self.connect([&](CardBytes*) { require(!refuses, "does not connect"); });
    } catch (const std::exception& error) {
      why = error.what();
    }
    require(
        refuses ||
            why.find(
                "no connection from rxe0 at 10.77.0.1 to 10.77.0.2: RDMA write to rank 1 failed: transport retry") == 0,
        why);
    self.meet();
    self.leave();
  });
}

void run(const std::string& command) {
  ASSERT_EQ(std::system(command.c_str()), 0) << command;  // NOLINT
}

TEST(RxeVerbs, LostPacketsAreSentAgain) {
  for (const char* wire : {"v0", "v1"}) run(fmt::format("tc qdisc add dev {} root netem loss 0.5%", wire));
  runTwoRanks([](RxeRank& self) {
    start(self);
    exchangeRounds(self, 100, 20);
    end(self);
  });
  for (const char* wire : {"v0", "v1"}) {
    // Fails if the line says that no packet was dropped.
    run(fmt::format("tc -s qdisc show dev {} | grep dropped | grep -v 'dropped 0,'", wire));
    run(fmt::format("tc qdisc del dev {} root", wire));
  }
}

// Runs last, because the routes go away with the link.
TEST(RxeVerbs, ZLastAPortThatGoesDownIsNamed) {
  runTwoRanks([](RxeRank& self) {
    start(self);
    exchangeRounds(self, 2, 3);
    self.meet();
    if (self.rank() == 0) {
      require(std::system("ip link set v0 down") == 0, "ip link");  // NOLINT
      const std::string why = self.failure();
      require(why.find("rank 0: the adapter rxe0 reports: port error") == 0, why);
    }
    self.meet();
    self.leave();
  });
}

}  // namespace
}  // namespace moe::test
