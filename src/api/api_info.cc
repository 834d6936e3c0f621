// The queries of the C ABI that describe a communicator and its peers.
#include <fmt/format.h>

#include <algorithm>

#include "api/guard.h"
#include "base/sized_struct.h"

using moe::Comm;

moeResult_t moeCommGetInfo(moeComm_t handle, moeCommInfo_t* info) {
  if (!Comm::is(handle)) return moe::refuseComm(handle);
  auto* comm = reinterpret_cast<Comm*>(handle);
  return moe::guard(comm, [&] {
    moeCommInfo_t result = MOE_COMM_INFO_INITIALIZER;
    result.nranks = comm->nranks();
    result.rank = comm->rank();
    result.backend = comm->backend().kind();
    result.device = comm->backend().device();
    const moe::CommView& view = comm->view();
    result.domain = view.domain();
    result.domainCount = view.domains();
    result.domainRank = comm->rank() - view.domainFirst;
    result.domainSize = view.domainSize;
    result.timeoutMs = static_cast<std::int32_t>(comm->timeout().count());
    result.bulkCopies = comm->backend().bulkCopies() ? 1 : 0;
    result.windowBytes = comm->layout().totalBytes;
    result.heapBytes = static_cast<uint64_t>(comm->shape().heapBytes);
    result.failed = &view.state->failuresClaimed;
    moe::writeStruct(info, result, "info");
  });
}

moeResult_t moeCommGetPeerInfo(moeComm_t handle, int32_t peer, moePeerInfo_t* info) {
  if (!Comm::is(handle)) return moe::refuseComm(handle);
  auto* comm = reinterpret_cast<Comm*>(handle);
  return moe::guard(comm, [&] {
    if (peer < 0 || peer >= comm->nranks()) {
      throw moe::Error(moeInvalidArgument, fmt::format("peer is {}, must be 0..{}", peer, comm->nranks() - 1));
    }
    const moe::Peer& known = comm->peers()[static_cast<std::size_t>(peer)];
    moePeerInfo_t result = MOE_PEER_INFO_INITIALIZER;
    result.rank = peer;
    result.transport = comm->transportTo(peer);
    result.domain = peer / comm->view().domainSize;
    result.processId = known.card.host.processId;
    result.device = known.card.device;
    result.lost = std::count(comm->lost().begin(), comm->lost().end(), peer) > 0 ? 1 : 0;
    const auto& host = known.card.host.hostName;
    std::copy_n(host.begin(), std::min(host.size(), sizeof result.hostName - 1), result.hostName);
    moe::writeStruct(info, result, "info");
  });
}
