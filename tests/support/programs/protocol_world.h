// N ranks of one communicator in plain memory of this process: windows, communicator states and handles, laid out as in
// the library. It runs nothing. operations.h makes steps from it, and a runner executes them.
#pragma once

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "device/view/handle_layout.h"
#include "device/view/views.h"
#include "support/base/guarded_bytes.h"
#include "support/reference/placed_experts.h"

namespace moe::test {

// A ring of puts, so small that it wraps and fills.
struct PutQueue {
  PutSlot slots[8] = {};
  std::uint64_t reserved = 0, taken = 0;

  PutRing ring() { return {slots, &reserved, &taken, 8}; }
};

// One rank's part of the communicator.
struct RankMemory {
  explicit RankMemory(std::size_t windowBytes) : window(windowBytes) {}

  GuardedBytes window;
  std::vector<std::uint8_t*> windows;  // [nranks], as the rank sees them
  PutQueue puts;
  FarView far{};
  CommState state{};
  Failure failure{};
  WaitOrders orders{};
  std::vector<std::uint32_t> departed;  // [nranks]
};

class TestComm {
 public:
  TestComm(const CommShape& shape, std::uint64_t timeoutNs);

  const CommShape& shape() const { return shape_; }
  const WindowPlan& at() const { return at_; }
  int nranks() const { return shape_.nranks; }
  RankMemory& rank(int rank) { return *ranks_[static_cast<std::size_t>(rank)]; }
  CommView view(int rank);
  // False for windows of other domains, which steps reach only by puts.
  bool reaches(int rank, int other) const { return rank / shape_.domainRanks() == other / shape_.domainRanks(); }
  bool isFlag(const void* address) const;
  // Returns the set of LL slots for the next LL handle. The last set comes first, where areas end.
  int takeLlSet() { return shape_.llSets - 1 - llHandles_++ % shape_.llSets; }

  // The words of this rank's window that outlast a step. They are flags, but for llLastRows.
  std::vector<Flag> lastingWords(int rank) const;
  // Replaces them by those of a recovery. Returns an error if a flag goes back, or differs between the ranks that write
  // it; empty if none does. Those of `lost` ranks may differ.
  std::string setLastingWords(int rank, const std::vector<Flag>& words, const std::vector<int>& lost);
  // Ranks that the others go on without.
  void setLost(const std::vector<int>& lost) { lost_ = lost; }
  bool isLost(int r) const { return std::find(lost_.begin(), lost_.end(), r) != lost_.end(); }
  // Fills the areas of a rank's window that lie in a range with zeros, and leaves the guard zones between them.
  void clear(int rank, std::uint64_t begin, std::uint64_t end);
  // Describes a write outside of the window's areas. Empty if there was none.
  std::string findStrayWrite() const;
  // The area that contains an address and the offset in it, for messages.
  std::string nameOf(const void* address) const;

 private:
  struct Area {
    const char* name;
    std::uint64_t begin, bytes;
  };
  void listAreas();
  template <class Add>
  void listRemoteAreas(Add add);

  CommShape shape_;
  WindowPlan at_;
  std::vector<Area> areas_;
  std::vector<std::unique_ptr<RankMemory>> ranks_;
  std::vector<int> lost_;
  int llHandles_ = 0;
};

// One handle on all ranks.
class TestHandle {
 public:
  TestHandle(TestComm& comm, const HandleShape& shape);

  const HandleShape& shape() const { return shape_; }
  HandleView view(int rank) const { return views_[static_cast<std::size_t>(rank)]; }
  // Numbers the calls whose counts the host waits for, as the library does. `view` carries the latest number.
  void takeTicket(int rank) { ++views_[static_cast<std::size_t>(rank)].ticket; }
  // The bound of this rank's next route, and of everything that uses it.
  void setTokensBound(int rank, int bound) {
    HandleView& view = views_[static_cast<std::size_t>(rank)];
    view.tokensMax = bound;
    view.terms.y = static_cast<std::uint32_t>(bound);
  }
  // The placement of this rank's next route; none: ids are physical.
  void setPlacement(int rank, const std::optional<PlacedExperts>& placed);
  // Numbers this rank's dispatches, which its arrival words count.
  std::uint64_t startDispatch(int rank) { return ++dispatches_[static_cast<std::size_t>(rank)]; }
  void setDispatches(int rank, std::uint64_t count) { dispatches_[static_cast<std::size_t>(rank)] = count; }
  std::uint64_t dispatches(int rank) const { return dispatches_[static_cast<std::size_t>(rank)]; }
  // From now on this handle's operations note how long they wait.
  void askForWaits() {
    for (auto& waits : waits_) waits.assign(static_cast<std::size_t>(shape_.map.nranks), 0);
  }
  // NULL: they do not.
  std::uint64_t* waits(int rank) { return waits_[static_cast<std::size_t>(rank)].data(); }
  // Makes this rank's handle differ from its peers' in something that must agree.
  void makeStranger(int rank) { views_[static_cast<std::size_t>(rank)].terms.w ^= 1; }
  // The same, in its placements.
  void makePlacementStranger(int rank) { stranger_ = rank; }
  std::string findStrayWrite() const;

 private:
  HandleShape shape_;
  int domainSize_;
  int stranger_ = -1;                   // whose placements are others
  std::vector<Placement*> placements_;  // [nranks], the memory for them
  std::vector<GuardedBytes> memory_, told_;
  std::vector<HandleView> views_;
  std::vector<std::uint64_t> dispatches_;
  std::vector<std::vector<std::uint64_t>> waits_;  // [nranks]; each is empty or [nranks]
};

}  // namespace moe::test
