// Scenarios in which a process must see a failure. It posts until that happens. It prints the syndromes of the failed
// operation and of those posted after it, and how long it took to see the failure.
#include <signal.h>

#include <cstdio>

#include "rdma/process_scenarios.h"

namespace moe::test {
namespace {

double secondsSince(std::chrono::steady_clock::time_point begin) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

Operation nextOperation(Peer& peer, mlx5::Opcode opcode, std::uint64_t number) {
  Operation operation;
  operation.opcode = opcode;
  operation.remote = peer.wordOf(1, 40);
  operation.flag = number;
  operation.immediate = static_cast<std::uint32_t>(number);
  if (opcode != mlx5::Opcode::rdmaWrite) operation.local = peer.ownWord(41);
  return operation;
}

// Posts one operation at a time until one fails, then two more, which must be flushed.
void postUntilFailure(Peer& peer, mlx5::Opcode opcode) {
  for (std::uint64_t number = 1; number <= 1000; ++number) {
    const auto begin = std::chrono::steady_clock::now();
    peer.link(1).post(nextOperation(peer, opcode, number));
    const Done done = peer.link(1).next();
    if (done.syndrome == mlx5::Syndrome::none) continue;
    const double seconds = secondsSince(begin);
    for (int i = 0; i < 2; ++i) peer.link(1).post(nextOperation(peer, opcode, number));
    const Done first = peer.link(1).next(), second = peer.link(1).next();
    std::printf("number %llu: %02x %02x %02x, state %d, after %.3f s\n", static_cast<unsigned long long>(number),
                static_cast<unsigned>(done.syndrome), static_cast<unsigned>(first.syndrome),
                static_cast<unsigned>(second.syndrome), static_cast<int>(peer.link(1).state()), seconds);
    return;
  }
  throw std::runtime_error("nothing fails");
}

template <mlx5::Opcode kOpcode>
void failAtFirst(Peer& peer) {
  if (peer.rank() == 0) postUntilFailure(peer, kOpcode);
  peer.meet();
}

// The second process exits silently after some flags. The others do not wait for it at the end.
void losePeer(Peer& peer) {
  if (peer.rank() == 0) return postUntilFailure(peer, mlx5::Opcode::rdmaWrite);
  if (peer.rank() != 1) return;
  waitFor("flags", [&] { return peer.load(40) >= 20; });
  kill(getpid(), SIGKILL);
}

}  // namespace

Scenario findFailure(const std::string& name) {
  if (name == "fail-writes") return failAtFirst<mlx5::Opcode::rdmaWrite>;
  if (name == "fail-reads") return failAtFirst<mlx5::Opcode::rdmaRead>;
  if (name == "fail-additions") return failAtFirst<mlx5::Opcode::fetchAdd>;
  if (name == "fail-immediates") return failAtFirst<mlx5::Opcode::rdmaWriteImm>;
  if (name == "lose-peer") return losePeer;
  return nullptr;
}

}  // namespace moe::test
