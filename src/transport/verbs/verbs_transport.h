// Puts by RDMA writes that a thread of this host posts through libibverbs: any adapter of any vendor. Made by comm.
#pragma once

#include <filesystem>
#include <memory>

#include "transport/remote.h"

namespace moe {

// Throws moeUnsupported with the reason if this build, this machine or its libibverbs cannot do it. `sys` is another
// directory in tests only.
std::unique_ptr<RemoteTransport> makeVerbsTransport(RemoteSetup setup, const std::filesystem::path& sys = "/sys");

}  // namespace moe
