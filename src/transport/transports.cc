#include "base/error.h"
#include "transport/ibgda/ibgda_transport.h"
#include "transport/remote.h"
#include "transport/tcp/tcp_transport.h"
#include "transport/verbs/verbs_transport.h"

namespace moe {

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

}  // namespace moe
