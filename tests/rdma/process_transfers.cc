// Scenarios in which everything that was sent arrives.
#include <cstdio>

#include "rdma/process_scenarios.h"

namespace moe::test {
namespace {

void expect(bool good, const char* what) {
  if (!good) throw std::runtime_error(what);
}

// ---- Rows of changing length, and flags that follow them on the same queue pair

// Rows that arrive from a process and rows sent to it each take turns between two places. A row is in use until the
// flag of the next round has come.
constexpr std::size_t kRowWords = Peer::kRows / (2 * (kProcessesMax + 1));
std::size_t rowPlace(int place, std::uint64_t round) {
  return (static_cast<std::size_t>(place) * 2 + round % 2) * kRowWords;
}
std::size_t rowLength(std::uint64_t round) {
  return 1 + round * 37 % 1200;
}
std::uint64_t rowWord(std::uint64_t round, int from, std::size_t i) {
  return round << 32 | static_cast<std::uint64_t>(from) << 24 | i;
}

void sendRound(Peer& peer, std::uint64_t round) {
  const std::size_t own = rowPlace(kProcessesMax, round), count = rowLength(round);
  for (std::size_t i = 0; i < count; ++i) peer.rows()[own + i] = rowWord(round, peer.rank(), i);
  for (int other = 0; other < peer.processes(); ++other) {
    if (other == peer.rank()) continue;
    Operation write;
    write.local = peer.ownRows(own, count);
    write.remote = peer.rowsOf(other, rowPlace(peer.rank(), round));
    write.signalled = round % 3 == 0;
    peer.link(other).post(write);
    peer.postFlag(other, static_cast<std::size_t>(peer.rank()), round);
  }
}

void receiveRound(Peer& peer, std::uint64_t round) {
  for (int other = 0; other < peer.processes(); ++other) {
    if (other == peer.rank()) continue;
    Done done;
    waitFor("a flag", [&] {
      if (peer.link(other).poll(&done)) expect(done.syndrome == mlx5::Syndrome::none, "an operation failed");
      return peer.load(static_cast<std::size_t>(other)) >= round;
    });
    const std::uint64_t* row = peer.rows() + rowPlace(other, round);
    for (std::size_t i = 0; i < rowLength(round); ++i) {
      expect(row[i] == rowWord(round, other, i), "a row is not there although its flag is");
    }
  }
}

template <std::uint64_t kRounds>
void goRounds(Peer& peer) {
  for (std::uint64_t round = 1; round <= kRounds; ++round) sendRound(peer, round), receiveRound(peer, round);
  peer.finishAll();
  peer.meet();  // nobody may exit while another waits for an acknowledgement that may have got lost
}

// ---- Many small writes: the indices pass 2^16, and the owner bits of completions flip often

void stream(Peer& peer) {
  constexpr std::uint64_t kCount = 70'000, kWords = 1024;
  const int other = (peer.rank() + 1) % peer.processes();
  Operation flag;
  for (std::uint64_t i = 1; i <= kCount; ++i) {
    flag.remote = peer.wordOf(other, i % kWords);
    flag.flag = i;
    flag.signalled = i % 16 == 0;
    peer.link(other).post(flag);
  }
  peer.finishAll();
  peer.meet();
  for (std::uint64_t i = kCount - kWords + 1; i <= kCount; ++i) expect(peer.load(i % kWords) == i, "a word is wrong");
}

// ---- Reads, atomics, immediates

void readAll(Peer& peer) {
  const auto word = [](int from, std::size_t i) { return static_cast<std::uint64_t>(from) << 32 | i * 3; };
  constexpr std::size_t kHalf = Peer::kRows / 2;
  for (std::size_t i = 0; i < kHalf; ++i) peer.rows()[i] = word(peer.rank(), i);
  peer.meet();
  for (std::size_t turn = 0; turn < 40; ++turn) {
    const std::size_t first = turn * 101, count = 1 + turn * turn * 7 % 5000;
    for (int other = 0; other < peer.processes(); ++other) {
      if (other == peer.rank()) continue;
      Operation read;
      read.opcode = mlx5::Opcode::rdmaRead;
      read.local = peer.ownRows(kHalf, count);
      read.remote = peer.rowsOf(other, first);
      peer.link(other).post(read);
      peer.link(other).finish();
      for (std::size_t i = 0; i < count; ++i) {
        expect(peer.rows()[kHalf + i] == word(other, first + i), "what was read is wrong");
      }
    }
  }
  peer.meet();
}

// Works on the first process's words: many additions under way at a time, and swaps that repeat until they succeed.
void addAndSwap(Peer& peer) {
  constexpr std::uint64_t kAdditions = 1000, kSwaps = 50;
  constexpr std::size_t kSum = 10, kSwapped = 11, kResult = 100;
  if (peer.rank() != 0) {
    Operation add;
    add.opcode = mlx5::Opcode::fetchAdd;
    add.remote = peer.wordOf(0, kSum);
    add.operand[0] = 3;
    for (std::size_t i = 0; i < kAdditions; ++i) {
      add.local = peer.ownWord(kResult + i);
      peer.link(0).post(add);
    }
    peer.link(0).finish();
    for (std::size_t i = 1; i < kAdditions; ++i) {
      expect(peer.load(kResult + i) > peer.load(kResult + i - 1), "an addition did not find the one before");
    }
    Operation swap;
    swap.opcode = mlx5::Opcode::compareSwap;
    swap.remote = peer.wordOf(0, kSwapped);
    swap.local = peer.ownWord(kResult);
    for (std::uint64_t done = 0; done < kSwaps;) {
      swap.operand[1] = swap.operand[0] + 1;
      peer.link(0).post(swap);
      peer.link(0).finish();
      const std::uint64_t before = peer.load(kResult);
      done += before == swap.operand[0];
      swap.operand[0] = before == swap.operand[0] ? before + 1 : before;
    }
  }
  peer.meet();
  if (peer.rank() != 0) return;
  const auto others = static_cast<std::uint64_t>(peer.processes() - 1);
  expect(peer.load(kSum) == 3 * kAdditions * others, "an addition got lost or happened twice");
  expect(peer.load(kSwapped) == kSwaps * others, "a swap got lost or happened twice");
}

// Sends from the first process to the second. If no receive is posted, the adapter tries again.
void sendImmediates(Peer& peer) {
  constexpr std::uint32_t kCount = 400, kAhead = 8;
  if (peer.rank() == 0) {
    peer.meet();
    Operation write;
    write.opcode = mlx5::Opcode::rdmaWriteImm;
    for (std::uint32_t i = 0; i < kCount; ++i) {
      peer.rows()[i * 16] = i + 1;
      write.local = peer.ownRows(std::size_t{i} * 16, 16);
      write.remote = peer.rowsOf(1, std::size_t{i} * 16);
      write.immediate = i;
      peer.link(1).post(write);
    }
    peer.finishAll();
  } else {
    for (std::uint32_t i = 0; i < kAhead; ++i) peer.link(0).postReceive();
    peer.meet();
    for (std::uint32_t i = 0; i < kCount; ++i) {
      const Done done = peer.link(0).next();
      expect(done.received && done.syndrome == mlx5::Syndrome::none, "not received well");
      expect(done.immediate == i && done.bytes == 128, "another immediate or length than was sent");
      expect(peer.rows()[i * 16] == i + 1, "an immediate came before its data");
      peer.link(0).postReceive();
    }
  }
  peer.meet();
}

// ---- Accesses that nothing orders. These scenarios print how often the order was wrong.

// The first process reads a counter of the second, and writes the value read back there.
template <bool kFenced>
void readThenWrite(Peer& peer) {
  constexpr std::uint64_t kRounds = 200;
  std::uint64_t wrong = 0;
  for (std::uint64_t round = 1; round <= kRounds; ++round) {
    if (peer.rank() == 1) {
      peer.store(20, round);
      peer.meet();
      peer.meet();
      wrong += peer.load(21) != round;
    } else {
      peer.meet();
      Operation read, write;
      read.opcode = mlx5::Opcode::rdmaRead;
      read.local = peer.ownWord(22);
      read.remote = peer.wordOf(1, 20);
      write.local = peer.ownWord(22);
      write.remote = peer.wordOf(1, 21);
      write.fenced = kFenced;
      peer.link(1).post(read), peer.link(1).post(write);
      peer.link(1).finish();
      peer.meet();
    }
  }
  if (peer.rank() == 1) std::printf("wrong: %llu\n", static_cast<unsigned long long>(wrong));
}

// The second process registers its rows for relaxed order. A written flag may overtake them. An added one may not.
template <bool kAdded>
void flagAfterRelaxedRow(Peer& peer) {
  constexpr std::uint64_t kRounds = 200;
  constexpr std::size_t kWords = 256;
  std::uint64_t wrong = 0;
  for (std::uint64_t round = 1; round <= kRounds; ++round) {
    if (peer.rank() == 0) {
      for (std::size_t i = 0; i < kWords; ++i) peer.rows()[i] = round;
      Operation write, add;
      write.local = peer.ownRows(0, kWords);
      write.remote = peer.rowsOf(1, 0);
      add.opcode = mlx5::Opcode::fetchAdd;
      add.operand[0] = 1;
      add.local = peer.ownWord(31);
      add.remote = peer.wordOf(1, 30);
      peer.link(1).post(write);
      kAdded ? peer.link(1).post(add) : peer.postFlag(1, 30, round);
      peer.link(1).finish();
    } else {
      waitFor("a flag", [&] { return peer.load(30) == round; });
      const std::atomic_ref last(peer.rows()[kWords - 1]);
      wrong += last.load(std::memory_order_relaxed) != round;
    }
    peer.meet();
  }
  if (peer.rank() == 1) std::printf("wrong: %llu\n", static_cast<unsigned long long>(wrong));
}

}  // namespace

Scenario findTransfer(const std::string& name) {
  constexpr std::pair<const char*, Scenario> kScenarios[] = {
      {"rounds", goRounds<300>},
      {"short-rounds", goRounds<80>},
      {"stream", stream},
      {"reads", readAll},
      {"atomics", addAndSwap},
      {"immediates", sendImmediates},
      {"read-then-write", readThenWrite<false>},
      {"read-then-fenced-write", readThenWrite<true>},
      {"relaxed-then-write", flagAfterRelaxedRow<false>},
      {"relaxed-then-add", flagAfterRelaxedRow<true>},
  };
  for (const auto& [known, scenario] : kScenarios) {
    if (name == known) return scenario;
  }
  return nullptr;
}

}  // namespace moe::test
