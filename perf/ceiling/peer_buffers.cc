#include "perf/ceiling/peer_buffers.h"

namespace moe::perf {

PeerBuffers::PeerBuffers(Group& group, int gpu, std::size_t bytes)
    : group_(group), own_(makeCudaWindow(bytes, Allocator{}, gpu, WindowSharing::ipc)) {
  WindowCard mine;
  mine.host = bootstrap::HostIdentity::current();
  mine.device = gpu;
  own_->describe(&mine);
  const auto noDescriptors = [](int) { return Fd(); };
  for (const std::vector<WindowCard>& card : group.gather(std::vector<WindowCard>{mine})) {
    const int rank = static_cast<int>(peers_.size());
    const WindowCard& peer = card.at(0);
    sharers_ += peer.deviceUuid == mine.deviceUuid && mine.host.sameHost(peer.host) ? 1 : 0;
    peers_.push_back(rank == group.rank() ? PeerWindow{own_->memory(), moeTransportSelf}
                                          : own_->open(rank, mine, peer, noDescriptors));
  }
  group.barrier();  // ranks that are threads open a window through its owner's object, which must still exist
}

std::vector<std::uint64_t> PeerBuffers::at(std::size_t offset) const {
  std::vector<std::uint64_t> addresses;
  for (const PeerWindow& peer : peers_)
    addresses.push_back(reinterpret_cast<std::uint64_t>(peer.memory.get() + offset));
  return addresses;
}

void PeerBuffers::close() {
  group_.barrier();
  peers_.clear();
  group_.barrier();
  own_.reset();
}

}  // namespace moe::perf
