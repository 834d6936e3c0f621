// What a communicator says of itself when it is made, for who wonders later why it is slow or does not do what a
// variable says. comm_init.cc calls it.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "base/log.h"
#include "comm/config.h"

namespace moe {

class Comm;

// Version and settings from the environment; a warning for each of `names` (of the environment) that is not known.
void logEnvironment(const Log& log, const Config& config, std::span<const std::string> names);

// "1, 3-5 (shared memory), 6-7 (TCP)": the other ranks, by the transport that reaches each.
std::string describePeers(const Comm& comm);

}  // namespace moe
