// Why puts do not arrive any more.
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <string>

#include "base/error.h"

namespace moe::verbs {

struct SendFailure {
  moeResult_t result;
  std::string text;  // "RDMA write to rank 5 failed: ..."
  int rank = -1;     // the peer, if it is about one
  int rail = 0;      // the adapter of the connection, by its place among this rank's
};

// In a handler of a transport's thread: what is being handled.
inline SendFailure currentFailure() {
  const Error error = currentError();
  return {error.result(), error.what()};
}

// When the first completion of a queue pair that reports an error says that its request was not tried: none of this
// rank's requests has failed, so it was one of the peer's, which ended the queue pair here too.
inline SendFailure refusedHere(int rank, std::uint32_t queuePair) {
  return {moeRemoteError,
          fmt::format(
              "the connection with rank {} broke: the adapter here has refused what that rank wrote (queue pair {:#x})",
              rank, queuePair),
          rank};
}

}  // namespace moe::verbs
