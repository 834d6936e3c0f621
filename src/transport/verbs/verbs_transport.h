// Carries puts by RDMA writes that a thread of this host posts through libibverbs, on adapters of any vendor. src/comm
// makes it.
#pragma once

#include <filesystem>
#include <memory>

#include "transport/remote.h"

namespace moe {

// Throws moeUnsupported with the reason if this build, this machine or its libibverbs does not support it. Only tests
// pass another `sys`.
std::unique_ptr<RemoteTransport> makeVerbsTransport(RemoteSetup setup, const std::filesystem::path& sys = "/sys");

}  // namespace moe
