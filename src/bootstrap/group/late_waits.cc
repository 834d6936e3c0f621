#include "bootstrap/group/late_waits.h"

#include "bootstrap/net/wire.h"

namespace moe::bootstrap {

std::vector<std::uint8_t> encodeLateWait(const LateWait& wait) {
  Writer payload;
  payload.u32(static_cast<std::uint32_t>(wait.awaited));
  payload.bytes(encodeReason(wait.failure.result, wait.failure.sentence));
  return payload.take();
}

LateWait decodeLateWait(int rank, std::span<const std::uint8_t> payload) {
  Reader in(payload);
  const auto awaited = static_cast<int>(in.u32());
  return {decodeReason(rank, in.rest()), awaited};
}

bool LateWaits::add(const LateWait& wait) {
  return byRank_.emplace(wait.failure.rank, wait).second;
}

const LateWait* LateWaits::waitFor(int awaited) const {
  for (const auto& [rank, wait] : byRank_) {
    if (wait.awaited == awaited && rank != awaited) return &wait;
  }
  return nullptr;
}

const LateWait& LateWaits::lastFrom(int rank) const {
  const LateWait* last = &byRank_.at(rank);
  for (std::size_t i = 0; i < byRank_.size(); ++i) {
    const auto next = byRank_.find(last->awaited);
    if (next == byRank_.end()) return *last;
    last = &next->second;
  }
  return byRank_.at(rank);
}

}  // namespace moe::bootstrap
