#include "bootstrap/group/failure.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/printable.h"
#include "bootstrap/net/frame.h"
#include "bootstrap/net/wire.h"

namespace moe::bootstrap {

std::vector<std::uint8_t> encodeReason(moeResult_t result, const std::string& sentence) {
  Writer payload;
  payload.u32(static_cast<std::uint32_t>(result));
  payload.text(std::string_view(sentence).substr(0, kSentenceBytesMax));
  return payload.take();
}

Failure decodeReason(int rank, std::span<const std::uint8_t> payload) {
  Reader in(payload);
  const auto result = static_cast<moeResult_t>(std::clamp<std::uint32_t>(in.u32(), 1, moeInternalError));
  const auto text = in.rest();
  return {rank, result, printable(std::string(text.begin(), text.end()))};
}

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

std::string describeRanks(std::span<const int> ranks, std::size_t total) {
  constexpr int kRunsMax = 8;
  total = std::max(total, ranks.size());
  std::string text = total == 1 ? "rank " : "ranks ";
  std::size_t shown = 0;
  for (int run = 0; run < kRunsMax && shown < ranks.size(); ++run) {
    std::size_t end = shown + 1;
    while (end < ranks.size() && ranks[end] == ranks[end - 1] + 1) ++end;
    if (run > 0) text += ", ";
    text += std::to_string(ranks[shown]);
    if (end - shown == 2) text += fmt::format(", {}", ranks[end - 1]);
    if (end - shown > 2) text += fmt::format("-{}", ranks[end - 1]);
    shown = end;
  }
  if (shown < total) text += fmt::format(" and {} more", total - shown);
  return text;
}

}  // namespace moe::bootstrap
