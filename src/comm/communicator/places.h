// Where the ranks of a communicator run, and which of them reach each other's memory (transport/reach.h).
#pragma once

#include <memory>
#include <vector>

#include "comm/communicator/comm.h"
#include "comm/communicator/domains.h"
#include "transport/reach.h"

namespace moe {

class Places {
 public:
  // Where this rank runs.
  explicit Places(Comm& comm);

  // Collective: gathers where all ranks run.
  void gather(bootstrap::Bootstrap& group);
  // Collective, then. The result is the same on all ranks.
  ReachTable gatherReach(bootstrap::Bootstrap& group);

  // The card of this rank, with its window.
  WindowCard cardOf(const Window& window) const;

  Reach& reach() const { return *reach_; }
  const bootstrap::HostIdentity& self() const { return own_.host; }
  const PlaceCard& of(int rank) const { return places_[static_cast<std::size_t>(rank)]; }
  // All ranks run on one kernel.
  bool shareClock() const;

 private:
  void forgetFabricOfThreads();

  Comm& comm_;
  std::unique_ptr<Reach> reach_;
  PlaceCard own_;
  std::vector<PlaceCard> places_;  // empty until they are gathered
};

}  // namespace moe
