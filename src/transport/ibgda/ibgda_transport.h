// Carries puts by RDMA writes that steps post themselves to the queues of an mlx5 adapter. src/comm makes it.
#pragma once

#include <filesystem>
#include <memory>

#include "transport/remote.h"

namespace moe {

// Throws moeUnsupported with the reason if this build, this machine, its adapter or its libmlx5 does not support it, or
// if steps cannot reach the queues.
std::unique_ptr<RemoteTransport> makeIbgdaTransport(RemoteSetup setup, const std::filesystem::path& sys = "/sys");

}  // namespace moe
