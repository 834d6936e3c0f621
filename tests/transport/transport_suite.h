// Requirements of every transport, whatever carries its puts. transport_suite.cc has the tests. A program instantiates
// AnyTransport with the options that choose its transport.
#pragma once

#include <gtest/gtest.h>

#include <ostream>

#include "transport/transport_world.h"

namespace moe::test {

struct TransportCase {
  const char* name;
  MemberOptions (*options)();
};
inline void PrintTo(const TransportCase& of, std::ostream* out) {
  *out << of.name;
}

class AnyTransport : public testing::TestWithParam<TransportCase> {
 protected:
  MemberOptions options(std::size_t windowBytes = std::size_t{1} << 20) const {
    MemberOptions chosen = GetParam().options();
    chosen.windowBytes = (windowBytes + 1023) / 512 * 512;  // leaving ranks write words at its end
    return chosen;
  }
};

// The layout of every window: flags [from][poster], then rows to send and received rows, both [rank][poster][row].
struct Plan {
  int ranks, posters, rows;
  std::size_t rowBytes = 768;

  std::uint64_t flag(int from, int poster) const { return 8U * static_cast<std::uint64_t>(from * posters + poster); }
  std::uint64_t ack(int from, int poster) const { return 4096 + flag(from, poster); }
  std::uint64_t area() const { return static_cast<std::uint64_t>(ranks * posters * rows) * rowBytes; }
  std::uint64_t outgoing(int to, int poster, int row) const {
    return 8192 + static_cast<std::uint64_t>((to * posters + poster) * rows + row) * rowBytes;
  }
  std::uint64_t incoming(int from, int poster, int row) const { return area() + outgoing(from, poster, row); }
  std::size_t windowBytes() const { return 8192 + 2 * area(); }
  static std::uint32_t seed(int from, int to, int poster, int row, std::uint32_t round) {
    return static_cast<std::uint32_t>(((from * 16 + to) * 16 + poster) * 64 + row) * 1024U + round;
  }
};

// One poster of a rank. It sends rows and then a word to every other rank. When a rank's word has come, it checks that
// rank's rows.
inline void exchange(Member& me, int rank, int poster, const Plan& plan, std::uint32_t rounds) {
  for (std::uint32_t round = 1; round <= rounds; ++round) {
    for (int to = 0; to < plan.ranks; ++to) {
      if (to == rank) continue;
      me.await(plan.ack(to, poster), round - 1);  // the peer has read these rows, so the transport has too
      for (int row = 0; row < plan.rows; ++row) {
        fillRow(me.at(plan.outgoing(to, poster, row)), plan.rowBytes, Plan::seed(rank, to, poster, row, round));
        if (!me.put(to, plan.incoming(rank, poster, row), plan.outgoing(to, poster, row), plan.rowBytes)) {
          throw Error(moeTimeout, "the ring stayed full");
        }
      }
      me.putWord(to, plan.flag(rank, poster), round);
    }
    for (int from = 0; from < plan.ranks; ++from) {
      if (from == rank) continue;
      me.await(plan.flag(from, poster), round);
      for (int row = 0; row < plan.rows; ++row) {
        const bool right =
            rowIs(me.at(plan.incoming(from, poster, row)), plan.rowBytes, Plan::seed(from, rank, poster, row, round));
        if (!right) throw Error(moeInternalError, "a word came before its rows");
      }
      me.putWord(from, plan.ack(rank, poster), round);
    }
  }
}

inline void exchangeAll(Members& members, const Plan& plan, std::uint32_t rounds) {
  members.run([&](Member& me, int rank) {
    expectAllWell(inThreads(plan.posters, [&](int poster) { exchange(me, rank, poster, plan, rounds); }));
    me.finish();
  });
  members.expectNoFailure();
}

}  // namespace moe::test
