#include "comm/communicator/places.h"

#include <algorithm>

#include "comm/communicator/rounds.h"

namespace moe {

Places::Places(Comm& comm) : comm_(comm) {
  const auto sharing = static_cast<WindowSharing>(comm.config().window);
  reach_ = comm.backend().kind() == moeBackendCuda
               ? makeCudaReach(comm.backend().device(), sharing, static_cast<bool>(comm.allocator()))
               : makeHostReach();
  if (const std::string why = reach_->whyOutsideFabric(); !why.empty())
    comm.log().write(moeLogInfo, "init", "the NVLink fabric is not used: {}", why);
  own_ = reach_->place();
}

void Places::gather(bootstrap::Bootstrap& group) {
  const auto all = group.allGather(asBytes(own_));
  places_.clear();
  for (int rank = 0; rank < comm_.nranks(); ++rank)
    places_.push_back(readCard<PlaceCard>(all[static_cast<std::size_t>(rank)], rank));
  if (comm_.nranks() > 1) forgetFabricOfThreads();
}

WindowCard Places::cardOf(const Window& window) const {
  WindowCard card;
  card.host = own_.host;
  card.device = comm_.backend().device();
  card.processors = processorsOfThisThread();
  window.describe(&card);
  return card;
}

bool Places::shareClock() const {
  return std::all_of(places_.begin(), places_.end(),
                     [&](const auto& place) { return place.host.sameKernel(places_[0].host); });
}

// Threads of one process share their windows by address, so these have no handle of the fabric.
void Places::forgetFabricOfThreads() {
  for (PlaceCard& place : places_) {
    if (place.inFabric == 0) continue;
    const auto sharers = std::count_if(places_.begin(), places_.end(),
                                       [&](const PlaceCard& other) { return other.host.sameProcess(place.host); });
    if (sharers > 1) place.inFabric = 0;
  }
}

ReachTable Places::gatherReach(bootstrap::Bootstrap& group) {
  std::vector<std::uint8_t> mine;
  for (int rank = 0; rank < comm_.nranks(); ++rank) {
    std::string why;
    const bool reached = rank == comm_.rank() || reach_->reaches(of(rank), &why);
    mine.push_back(reached ? 1 : 0);
    if (!reached && !why.empty())
      comm_.log().write(moeLogInfo, "init", "does not reach the memory of rank {}: {}", rank, why);
  }
  ReachTable all = group.allGather(mine);
  for (int rank = 0; rank < comm_.nranks(); ++rank) {
    if (all[static_cast<std::size_t>(rank)].size() != mine.size()) throwOtherVersion(rank);
  }
  return all;
}

}  // namespace moe
