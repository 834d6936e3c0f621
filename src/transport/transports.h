// The transports between domains: how each carries puts, and how it is made. If the user chooses none, it is the
// fastest one that every rank can make. src/comm calls it.
#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "transport/remote.h"

namespace moe {

// ---- TCP sockets, between any two hosts that can reach each other. It needs no RDMA. Bytes of windows in GPU memory
// pass through pinned memory.

struct TcpOptions {
  int rings = 2;                   // each with a thread that sends and one that receives; at most kPutRingsMax
  std::uint32_t ringSlots = 4096;  // a power of two
  // Puts that may wait for one slow peer before they hold up the other peers of its ring.
  std::size_t backlogMax = 1U << 16U;
};

// Throws moeInvalidArgument (no such interface), moeSystemError.
std::unique_ptr<RemoteTransport> makeTcpTransport(RemoteSetup setup);
std::unique_ptr<RemoteTransport> makeTcpTransport(RemoteSetup setup, const TcpOptions& options);

// ---- RDMA writes that a thread of this host posts through libibverbs, on adapters of any vendor

// Throws moeUnsupported with the reason if this build, this machine or its libibverbs does not support it. Only tests
// pass another `sys`.
std::unique_ptr<RemoteTransport> makeVerbsTransport(RemoteSetup setup, const std::filesystem::path& sys = "/sys");

// ---- RDMA writes that steps post themselves to the queues of an mlx5 adapter

// Throws moeUnsupported with the reason if this build, this machine, its adapter or its libmlx5 does not support it, or
// if steps cannot reach the queues.
std::unique_ptr<RemoteTransport> makeIbgdaTransport(RemoteSetup setup, const std::filesystem::path& sys = "/sys");

// ---- The choice

// moeTransport values, the fastest first. TCP, which always exists, is last.
std::vector<int> fastestFirst(int backend);

// Gathers every rank's result of an attempt, by rank: the reason of its failure, or nothing. `mine` is this rank's.
using GatherReasons = std::function<std::vector<std::string>(const std::string& mine)>;

// Collective: makes the first of `kinds` that every rank can make. Throws where not even the last kind is possible. The
// log names each kind that was passed over, which rank lacks it, and why. That rank logs a warning if its machine has
// an RDMA adapter, because the user surely meant to use it.
std::unique_ptr<RemoteTransport> makeFirstPossible(const RemoteSetup& setup, const std::vector<int>& kinds,
                                                   const GatherReasons& gather);

}  // namespace moe
