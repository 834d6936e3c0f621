#include "bootstrap/group/gather.h"

#include <utility>

namespace moe::bootstrap {

std::uint16_t Gather::begin() {
  ++sequence_;
  running_ = true;
  waiting_.clear();
  return sequence_;
}

bool Gather::plausible(std::uint16_t sequence) const {
  const auto ahead = static_cast<std::uint16_t>(sequence - sequence_);
  return ahead == 1 || (ahead == 0 && running_);
}

bool Gather::add(std::uint16_t sequence, int rank, std::span<const std::uint8_t> blob) {
  if (!plausible(sequence)) return false;
  Round& round = rounds_[sequence];
  round.blobs.resize(nranks_);
  round.have.resize(nranks_);
  const auto index = static_cast<std::size_t>(rank);
  if (index >= nranks_ || round.have[index]) return false;
  round.have[index] = true;
  round.blobs[index].assign(blob.begin(), blob.end());
  ++round.count;
  return true;
}

std::vector<std::vector<std::uint8_t>> Gather::finish() {
  auto blobs = std::move(rounds_[sequence_].blobs);
  rounds_.erase(sequence_);
  running_ = false;
  return blobs;
}

std::vector<int> Gather::missing() {
  const Round& round = rounds_[sequence_];
  std::vector<int> ranks;
  for (std::size_t rank = 0; rank < nranks_; ++rank) {
    if (round.have.empty() || !round.have[rank]) ranks.push_back(static_cast<int>(rank));
  }
  return ranks;
}

void Gather::noteWaiting(std::vector<int> ranks, std::size_t total) {
  waiting_ = std::move(ranks);
  waitingTotal_ = total;
  waitingAt_ = Deadline::Clock::now();
}

}  // namespace moe::bootstrap
