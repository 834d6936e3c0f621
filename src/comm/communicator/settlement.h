// Writes the words of a rank when no step runs on any rank (decisions 0122 and 0125): in a recovery, and when a
// newcomer is taken in.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "comm/communicator/comm.h"
#include "device/view/settled.h"

namespace moe {

class Settlement {
 public:
  explicit Settlement(Comm& comm) : comm_(comm), backend_(comm.backend()) {}

  EndedOperations endedIn(const Room& room) {
    CommState state;
    static_assert(sizeof state % sizeof(std::uint64_t) == 0);
    backend_.readWords(reinterpret_cast<std::uint64_t*>(&state),
                       reinterpret_cast<const std::uint64_t*>(room.view.state), sizeof state / 8);
    return endedOf(state);
  }

  void settle(Room& room, const EndedOperations& ended, LostList lost) {
    const CommView& view = room.view;
    std::vector<Flag> words(lastingWords(view.at));
    SettledWords(words, view.at, room.shape.domains() > 1 ? &comm_.farLayout() : nullptr, room.shape, lost)
        .write(ended);
    const CommState state = settledState(ended, lost);
    backend_.copyToPrivate(room.base(), words.data(), words.size() * sizeof(Flag));
    backend_.copyToPrivate(view.state, &state, sizeof state);
  }

  // For lost ranks, which tell nothing any more.
  void clearTold(Room& room) {
    const std::vector<std::uint8_t> zeros(std::size_t{1} << 20);
    for (const ToldArea& area : toldAreas(room.view.at, room.view.nranks, room.shape.llSets)) {
      for (std::uint64_t at = 0; at < area.bytes; at += zeros.size()) {
        const std::size_t bytes = std::min<std::size_t>(zeros.size(), area.bytes - at);
        backend_.copyToPrivate(room.base() + area.begin + at, zeros.data(), bytes);
      }
    }
  }

 private:
  const Comm& comm_;
  Backend& backend_;
};

}  // namespace moe
