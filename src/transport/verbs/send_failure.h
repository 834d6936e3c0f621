// Why puts do not arrive any more.
#pragma once

#include <string>

#include "moecomm.h"

namespace moe::verbs {

struct SendFailure {
  moeResult_t result;
  std::string text;  // "RDMA write to rank 5 failed: ..."
  int rank = -1;     // the peer, if it is about one
};

}  // namespace moe::verbs
