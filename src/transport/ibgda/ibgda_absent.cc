// Replaces the transport with puts posted by steps, in builds without the headers of libmlx5.
#include "base/error.h"
#include "transport/transports.h"

namespace moe {

// NOLINTNEXTLINE(performance-unnecessary-value-param): as the other implementation
std::unique_ptr<RemoteTransport> makeIbgdaTransport(RemoteSetup, const std::filesystem::path&) {
  throw Error(moeUnsupported,
              "IBGDA: this build of moecomm lacks it, because <infiniband/mlx5dv.h> was missing; install "
              "libibverbs-dev and build again");
}

}  // namespace moe
