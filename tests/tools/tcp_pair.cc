// One of two ranks, each a process, that put rows to each other over TCP. They exchange cards through files in a
// directory.
//   Usage: tcp_pair RANK DIRECTORY INTERFACE TIMEOUT_MS ROUNDS (0: until something fails)
// Prints "done", or what failed and after how long without a word from the other rank. Exits with 3 after a failure,
// else with 0.
#include <cstdio>
#include <fstream>
#include <iterator>

#include "transport/transport_world.h"

namespace moe::test {
namespace {

constexpr std::size_t kRowBytes = 7168;
constexpr int kRows = 32;

CardBytes exchangeCards(const std::string& directory, int rank, const CardBytes& mine) {
  const auto path = [&](int of) { return directory + "/card" + std::to_string(of); };
  std::ofstream(path(rank) + ".new", std::ios::binary)
      .write(reinterpret_cast<const char*>(mine.data()), static_cast<std::streamsize>(mine.size()));
  std::filesystem::rename(path(rank) + ".new", path(rank));
  const auto end = Clock::now() + 20s;
  while (!std::filesystem::exists(path(1 - rank))) {
    if (Clock::now() > end) throw Error(moeTimeout, "the other process did not write its card");
    std::this_thread::sleep_for(10ms);
  }
  std::ifstream in(path(1 - rank), std::ios::binary);
  return CardBytes(std::istreambuf_iterator<char>(in), {});
}

// False if something failed.
bool awaitWord(Member& me, std::uint64_t offset, std::uint64_t word) {
  while (me.load(offset) < word) {
    if (!me.failures().empty()) return false;
    std::this_thread::yield();
  }
  return true;
}

bool playRound(Member& me, int rank, std::uint64_t round) {
  const int other = 1 - rank;
  for (int row = 0; row < kRows; ++row) {
    const std::uint64_t outgoing = 64 + static_cast<std::uint64_t>(row) * kRowBytes;
    const std::uint64_t incoming = outgoing + kRows * kRowBytes;
    fillRow(me.at(outgoing), kRowBytes, static_cast<std::uint32_t>(round * 64) + static_cast<std::uint32_t>(row));
    if (!me.put(other, incoming, outgoing, kRowBytes)) return false;
  }
  if (!me.putWord(other, 0, round) || !awaitWord(me, 0, round)) return false;
  for (int row = 0; row < kRows; ++row) {
    const std::uint64_t incoming = 64 + static_cast<std::uint64_t>(row + kRows) * kRowBytes;
    const auto seed = static_cast<std::uint32_t>(round * 64) + static_cast<std::uint32_t>(row);
    if (!rowIs(me.at(incoming), kRowBytes, seed)) throw Error(moeInternalError, "a word came before its rows");
  }
  return me.putWord(other, 8, round) && awaitWord(me, 8, round);  // both ranks have read the rows
}

int play(int rank, const std::string& directory, const std::string& interfaceName, int timeoutMs,
         std::uint64_t rounds) {
  MemberOptions options;
  options.interfaceName = interfaceName;
  options.timeoutMs = timeoutMs;
  Member me(rank, 2, options);
  const CardBytes mine = me.transport().card();
  const CardBytes theirs = exchangeCards(directory, rank, mine);
  me.connect(rank == 0 ? std::vector{mine, theirs} : std::vector{theirs, mine});
  auto heard = Clock::now();
  for (std::uint64_t round = 1; rounds == 0 || round <= rounds; ++round) {
    if (!playRound(me, rank, round)) {
      const Outcome failure = me.awaitFailure(1s);
      std::printf("failed in round %d after %d ms: %s\n", static_cast<int>(round),
                  static_cast<int>(secondsSince(heard) * 1000), failure.sentence.c_str());
      return 3;
    }
    heard = Clock::now();
    if (round == 10) std::ofstream(directory + "/going" + std::to_string(rank)).put('x');
  }
  me.finish();
  for (const Outcome& failure : me.failures()) throw Error(failure.result, failure.sentence);
  std::printf("done\n");
  return 0;
}

}  // namespace
}  // namespace moe::test

int main(int argc, char** argv) {
  if (argc != 6) return 2;
  int status = 1;
  const auto outcome = moe::test::outcomeOf([&] {
    status = moe::test::play(std::stoi(argv[1]), argv[2], argv[3], std::stoi(argv[4]), std::stoull(argv[5]));
  });
  if (outcome.result != moeSuccess) std::printf("%s\n", outcome.sentence.c_str());
  return outcome.result == moeSuccess ? status : 1;
}
