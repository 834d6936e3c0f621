// Carries puts over TCP sockets. It works between any two hosts that can reach each other, and needs no RDMA. Bytes of
// windows in GPU memory pass through pinned memory.
#pragma once

#include "transport/remote.h"

namespace moe {

struct TcpOptions {
  int rings = 2;                   // each with a thread that sends and one that receives; at most kPutRingsMax
  std::uint32_t ringSlots = 4096;  // a power of two
  // Puts that may wait for one slow peer before they hold up the other peers of its ring.
  std::size_t backlogMax = 1U << 16U;
};

// Throws moeInvalidArgument (no such interface), moeSystemError.
std::unique_ptr<RemoteTransport> makeTcpTransport(RemoteSetup setup);
std::unique_ptr<RemoteTransport> makeTcpTransport(RemoteSetup setup, const TcpOptions& options);

}  // namespace moe
