// What a rank learns about another one that will not do its part any more.
#pragma once

#include <string>

#include "moecomm.h"

namespace moe::bootstrap {

struct Failure {
  int rank;            // the rank that died or announced the failure
  moeResult_t result;  // moeRemoteError for a death, else what was announced
  std::string sentence;
};

}  // namespace moe::bootstrap
