#include "transport/transports.h"

#include <algorithm>

#include "base/error.h"
#include "topology/sysfs.h"
#include "transport/remote.h"

namespace moe {
namespace {

bool hasAdapter(const RemoteSetup& setup) {
  return !topology::listNames(std::filesystem::path(setup.rdma.sys) / "class/infiniband").empty();
}

// Tries to make the transport. Returns why this rank cannot make it, or nothing and the transport in `made`.
std::string attempt(const RemoteSetup& setup, int kind, std::unique_ptr<RemoteTransport>* made) {
  try {
    *made = makeRemoteTransport(setup, kind);
  } catch (...) {  // also without memory, because the other ranks go through the same steps
    return currentError().what();
  }
  return "";
}

}  // namespace

const char* nameOfTransport(int kind) {
  switch (kind) {
    case moeTransportSelf:
      return "self";
    case moeTransportDirect:
      return "direct";
    case moeTransportShm:
      return "shared memory";
    case moeTransportCudaIpc:
      return "CUDA IPC";
    case moeTransportFabric:
      return "NVLink fabric";
    case moeTransportTcp:
      return "TCP";
    case moeTransportVerbs:
      return "verbs";
    case moeTransportIbgda:
      return "IBGDA";
    default:
      return "unknown";
  }
}

std::unique_ptr<RemoteTransport> makeRemoteTransport(RemoteSetup setup, int kind) {
  if (kind == moeTransportTcp) return makeTcpTransport(std::move(setup));
  const std::string sys = setup.rdma.sys;
  if (kind == moeTransportVerbs) return makeVerbsTransport(std::move(setup), sys);
  if (kind == moeTransportIbgda) return makeIbgdaTransport(std::move(setup), sys);
  throw Error(moeUnsupported, std::string("no transport between domains of this kind: ") + nameOfTransport(kind));
}

// On the host, a thread that posts is as good as a step that does.
std::vector<int> fastestFirst(int backend) {
  if (backend == moeBackendCuda) return {moeTransportIbgda, moeTransportVerbs, moeTransportTcp};
  return {moeTransportVerbs, moeTransportTcp};
}

std::unique_ptr<RemoteTransport> makeFirstPossible(const RemoteSetup& setup, const std::vector<int>& kinds,
                                                   const GatherReasons& gather) {
  for (std::size_t i = 0; i + 1 < kinds.size(); ++i) {
    std::unique_ptr<RemoteTransport> made;
    const std::vector<std::string> reasons = gather(attempt(setup, kinds[i], &made));
    const auto first = std::find_if(reasons.begin(), reasons.end(), [](const auto& reason) { return !reason.empty(); });
    if (first == reasons.end()) return made;
    const auto rank = first - reasons.begin();
    const bool warn = rank == setup.rank && hasAdapter(setup);
    setup.log.write(warn ? moeLogWarn : moeLogInfo, "init", "{} is not used between domains: rank {}: {}",
                    nameOfTransport(kinds[i]), rank, *first);
  }
  return makeRemoteTransport(setup, kinds.back());
}

}  // namespace moe
