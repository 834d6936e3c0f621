// Logs what a communicator consists of, so that users can find out later why it is slow or ignores a variable.
// comm_init.cc calls it.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "base/log.h"
#include "comm/config/config.h"

namespace moe {

class Comm;

// Logs the version and the settings from the environment, with a warning for each unknown name in `names`.
void logEnvironment(const Log& log, const Config& config, std::span<const std::string> names);

// "1, 3-5 (shared memory), 6-7 (TCP)": the other ranks, by the transport that reaches each.
std::string describePeers(const Comm& comm);

}  // namespace moe
