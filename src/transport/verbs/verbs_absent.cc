// Replaces the verbs transport in builds without the headers of libibverbs.
#include "base/error.h"
#include "transport/transports.h"

namespace moe {

// NOLINTNEXTLINE(performance-unnecessary-value-param): as the other implementation
std::unique_ptr<RemoteTransport> makeVerbsTransport(RemoteSetup, const std::filesystem::path&) {
  throw Error(moeUnsupported,
              "RDMA: this build of moecomm lacks it, because <infiniband/verbs.h> was missing; install libibverbs-dev "
              "and build again");
}

}  // namespace moe
