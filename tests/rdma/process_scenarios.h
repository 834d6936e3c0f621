// What the processes of a test do together. A scenario throws if what came is not what was sent, and may print a line
// that the test reads.
#pragma once

#include <string>

#include "rdma/process_peer.h"

namespace moe::test {

// Null, if there is none of this name.
using Scenario = void (*)(Peer&);
Scenario findTransfer(const std::string& name);
Scenario findFailure(const std::string& name);

// A poster that does wrong, in one process: false, if there is no mistake of this name.
bool makeMistake(const std::string& name);

}  // namespace moe::test
