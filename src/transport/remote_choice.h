// Chooses the transport between domains if the user does not: the fastest one that every rank can make.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "transport/remote.h"

namespace moe {

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
