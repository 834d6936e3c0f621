// Why puts no longer arrive.
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <string>

#include "base/error.h"

namespace moe::verbs {

struct SendFailure {
  moeResult_t result;
  std::string text;  // "RDMA write to rank 5 failed: ..."
  int rank = -1;     // the peer concerned, if any
  int rail = 0;      // the connection's adapter, as an index among this rank's
};

// For use in a handler of a transport's thread: the failure of the current exception.
inline SendFailure currentFailure() {
  const Error error = currentError();
  return {error.result(), error.what()};
}

// The failure if a queue pair's first error completion says that its request was not tried. Then none of this rank's
// requests has failed. One of the peer's requests did, and ended the queue pair here too.
inline SendFailure refusedHere(int rank, std::uint32_t queuePair) {
  return {moeRemoteError,
          fmt::format(
              "the connection with rank {} broke: the adapter here has refused that rank's writes (queue pair {:#x})",
              rank, queuePair),
          rank};
}

}  // namespace moe::verbs
