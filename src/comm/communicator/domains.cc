#include "comm/communicator/domains.h"

namespace moe {

std::optional<std::pair<int, int>> apartInDomains(const ReachTable& reach, int size) {
  const int nranks = static_cast<int>(reach.size());
  const auto reaches = [&](int from, int to) {
    return reach[static_cast<std::size_t>(from)][static_cast<std::size_t>(to)] != 0;
  };
  for (int rank = 0; rank < nranks; ++rank) {
    const int first = rank / size * size;
    for (int other = first; other < first + size; ++other) {
      if (!reaches(rank, other)) return std::pair{rank, other};
    }
  }
  return std::nullopt;
}

int largestDomains(const ReachTable& reach) {
  int size = static_cast<int>(reach.size());
  while (reach.size() % static_cast<std::size_t>(size) != 0 || apartInDomains(reach, size)) --size;
  return size;
}

}  // namespace moe
