// Chooses what carries puts between domains if the user does not: the fastest transport that every rank can make.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "transport/remote.h"

namespace moe {

// moeTransport values, the fastest first. TCP, which always exists, is last.
std::vector<int> fastestFirst(int backend);

// What every rank says of an attempt, by rank, when this one says `mine`: why it has failed, or nothing.
using GatherReasons = std::function<std::vector<std::string>(const std::string& mine)>;

// Collective: the first of `kinds` that every rank can make. The last kind must be possible; this throws where it is
// not. The log says which kind was passed over, which rank cannot have it, and why. That rank logs a warning if its
// machine has an RDMA adapter, which was surely meant to be used.
std::unique_ptr<RemoteTransport> makeFirstPossible(const RemoteSetup& setup, const std::vector<int>& kinds,
                                                   const GatherReasons& gather);

}  // namespace moe
