// Which transport carries puts between domains if the user leaves it open: the fastest that every rank can make.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "transport/remote.h"

namespace moe {

// moeTransport values, the fastest first; TCP, which is always there, is last.
std::vector<int> fastestFirst(int backend);

// What every rank says of an attempt, by rank, when this one says `mine`: the reason why it has failed, or nothing.
using GatherReasons = std::function<std::vector<std::string>(const std::string& mine)>;

// Collective: the first of `kinds` that every rank can make; the last one is returned where it can be made, and throws
// where not. The log says which kind was passed over, which rank cannot have it, and why: to that rank it is a warning,
// if its machine has an RDMA adapter, as that was meant to be used.
std::unique_ptr<RemoteTransport> makeFirstPossible(const RemoteSetup& setup, const std::vector<int>& kinds,
                                                   const GatherReasons& gather);

}  // namespace moe
