// Where handles work: windows of some ranks, and which operations hold places in them. A communicator has the room of
// its group. Beside it there may be one of this rank alone, for handles of localOnly (local_room.cc).
#pragma once

#include <algorithm>
#include <memory>

#include "backend/backend.h"
#include "comm/communicator/outstanding.h"
#include "transport/window.h"

namespace moe {

struct Room {
  CommShape shape;
  CommView view{};  // its rank and nranks are of the room
  Memory state, table;
  std::unique_ptr<Window> window;  // that peers map; a room of one rank has private memory instead
  Memory own;
  OutstandingOperations operations;
  int llHandles[kLlSetsMax] = {};

  std::uint8_t* base() const { return window ? window->base() : own.get(); }

  // The set of LL slots for a new handle: the one with the fewest handles. Ranks that make and destroy the same handles
  // in the same order choose alike.
  int takeLlSet() {
    int* least = std::min_element(llHandles, llHandles + shape.llSets);
    ++*least;
    return static_cast<int>(least - llHandles);
  }
  void giveBackLlSet(int set) { --llHandles[set]; }
};

// What steps see of a shape's sizes.
inline void showSizes(const CommShape& shape, CommView* view) {
  view->tokensMax = shape.tokensMax;
  view->llTokensMax = shape.llTokensMax;
  view->rowBytesMax = shape.rowBytesMax;
  view->sideBytesMax = shape.sideBytesMax;
  view->topkMax = shape.topkMax;
}

}  // namespace moe
