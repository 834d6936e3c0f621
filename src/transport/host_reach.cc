#include "transport/reach.h"

namespace moe {

PlaceCard HostReach::place() {
  PlaceCard card;
  card.host = self_;
  return card;
}

bool HostReach::reaches(const PlaceCard& peer, std::string*) {
  return self_.sameHost(peer.host);
}

std::unique_ptr<Window> HostReach::makeWindow(std::size_t bytes, const Allocator& allocator, WindowSharing) {
  return makeHostWindow(bytes, allocator);
}

// Weak, so that a test program can have hosts of its own.
[[gnu::weak]] std::unique_ptr<Reach> makeHostReach() {
  return std::make_unique<HostReach>();
}

}  // namespace moe
