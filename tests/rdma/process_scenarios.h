// What the processes of a test do together. A scenario throws if something else came than was sent, and may print a
// line for the test.
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
