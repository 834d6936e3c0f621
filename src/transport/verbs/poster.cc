#include "transport/verbs/poster.h"

namespace moe::verbs {
namespace {

constexpr std::uint32_t kRingSlots = 4096;

}  // namespace

Poster::Poster(const RemoteSetup& setup, const LocalEnd& end, int index, int depth)
    : intake_(setup.backend, kRingSlots),
      sender_(end.railOf(index).adapter, {setup.window, setup.windowBytes, end.railOf(index).region.keys.local},
              end.completions(index), depth, setup.nranks, end.connections()) {}

void Poster::probe() {
  for (std::size_t queue = 0; queue < sender_.queues().size(); ++queue) {
    sender_.probe(queue);
    sender_.flush();
  }
}

void Poster::start(const EventWatch* events, const FailureReport::Tell& report, const std::vector<int>& cpus) {
  carrier_ = std::make_unique<Carrier>(intake_, sender_, events, report, cpus);
}

}  // namespace moe::verbs
