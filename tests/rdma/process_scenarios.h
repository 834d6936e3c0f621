// The common work of the processes of a test. A scenario throws if something other arrives than was sent. It may print
// a line for the test.
#pragma once

#include <string>

#include "rdma/process_peer.h"

namespace moe::test {

// Returns null if no scenario has this name.
using Scenario = void (*)(Peer&);
Scenario findTransfer(const std::string& name);
Scenario findFailure(const std::string& name);

// Runs a poster that makes a mistake, in one process. Returns false if no mistake has this name.
bool makeMistake(const std::string& name);

}  // namespace moe::test
