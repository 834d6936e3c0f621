// What a newcomer and the survivors of a group tell each other (decision 0125), and the rounds in which it becomes a
// rank of the group. recover.cc has the survivors' side, comm_init.cc the newcomer's.
#pragma once

#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <vector>

#include "comm/communicator/agreed_values.h"
#include "comm/communicator/handle_card.h"
#include "comm/communicator/rounds.h"
#include "comm/communicator/settlement.h"
#include "transport/window.h"

namespace moe {

// A newcomer tells it to its sponsor, which compares the settings, and with it to all survivors.
struct NewcomerCard {
  AgreedValues settings{};
  WindowCard window;
};

// What the group has agreed on, in the table from the sponsor. The window cards of all ranks follow, and the cards of
// the living handles, in the order of their creation.
struct GroupHead {
  ModeLimits limits = untuned();
  std::int32_t llHandles[kLlSetsMax] = {};
  std::int32_t handlesMade = 0;
};
struct GroupTable {
  GroupHead head;
  std::vector<WindowCard> windows;
  std::vector<HandleCard> handles;

  std::vector<std::uint8_t> bytes() const;
  // Throws moeInternalError if they are malformed.
  static GroupTable read(std::span<const std::uint8_t> bytes, int nranks);
};

// The card of a newcomer that a sponsor has checked.
NewcomerCard cardOf(const bootstrap::Newcomer& newcomer);

// The rounds of an admission, on survivors and newcomers alike. `map` maps windows, whose descriptors peers fetch. When
// all have done so, `settle` writes this rank's words for the new counts of operations.
class Admission {
 public:
  Admission(Comm& comm, bootstrap::Bootstrap& group, const char* call) : comm_(comm), group_(group), call_(call) {}

  template <class Map, class Settle>
  void run(Map map, Settle settle) {
    group_.serveFd(comm_.room().window->fd());
    together(group_, map, call_);
    const EndedOperations ended = agree();
    together(
        group_, [&] { settle(ended); }, call_);
    settled_ = true;
    group_.allGather({}, call_);
  }
  // Every rank has settled: the newcomers may be ranks like the others, whatever has failed here since.
  bool settled() const { return settled_; }

 private:
  // A newcomer has ended nothing.
  EndedOperations agree() {
    const EndedOperations mine = Settlement(comm_).endedIn(comm_.room());
    const auto cards = group_.allGather(asBytes(mine), call_);
    std::vector<EndedOperations> all;
    for (int rank = 0; rank < group_.nranks(); ++rank) {
      if (!group_.isLost(rank)) all.push_back(readCard<EndedOperations>(cards[static_cast<std::size_t>(rank)], rank));
    }
    return beyond(all);
  }

  Comm& comm_;
  bootstrap::Bootstrap& group_;
  const char* call_;
  bool settled_ = false;
};

}  // namespace moe
