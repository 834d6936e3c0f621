// The ranks that a group goes on without (decision 0123). No row is sent to them: an entry that names one of their
// experts counts as unused. Nothing comes from them either. What they had told is zeros, and their flags are ahead of
// every epoch, so no step waits for them.
#pragma once

#include "device/view/views.h"

namespace moe {

// The flag of a lost rank, which no epoch exceeds. Read as terms or as a number of rows, it says 0.
inline constexpr Flag kLostWord = flagWord((std::uint64_t{1} << (64 - kFlagValueBits)) - 1);

// Looked up once by each lane, beside the ids that it is for. The words of ranks from 32 on are looked up when needed.
struct LostRanks {
  const CommState* state;
  std::uint32_t first;

  explicit MOE_LANES LostRanks(const CommView& c) : state(c.state), first(c.state->lost[0]) {}

  MOE_LANES bool has(int rank) const { return ((rank < 32 ? first : state->lost[rank / 32]) >> rank % 32 & 1) != 0; }

  // The expert that an entry counts with, if it names `id`: -1 if that is on a lost rank. An invalid id stays invalid.
  MOE_LANES std::int64_t standing(const ExpertMap& map, std::int64_t id) const {
    return id >= 0 && id < map.experts && has(map.rankOf(static_cast<int>(id))) ? -1 : id;
  }
};

}  // namespace moe
