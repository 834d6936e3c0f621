// Makes a rank's table of a placement (placement.h). Host code.
#pragma once

#include <algorithm>
#include <cstring>
#include <vector>

#include "device/view/placement.h"
#include "device/view/shape.h"
#include "device/view/terms.h"

namespace moe {

// The experts and ranks of a handle, and the rank that the table is for.
struct PlacementRoom {
  ExpertMap map;
  int rank;
  int domainSize;
  std::vector<int> lost = {};  // ranks whose copies are not used

  bool lives(int physical) const { return std::find(lost.begin(), lost.end(), map.rankOf(physical)) == lost.end(); }
};

// A table before it is packed.
struct PlacementParts {
  explicit PlacementParts(int physicalExperts)
      : head{},
        replicas(static_cast<std::size_t>(physicalExperts), Replicas{0, 0, divisorOf(1)}),
        list(static_cast<std::size_t>(physicalExperts), 0) {}

  Placement head;
  std::vector<Replicas> replicas;
  std::vector<std::int32_t> list;

  std::vector<std::uint8_t> packed() const {
    std::vector<std::uint8_t> table(static_cast<std::size_t>(placementBytes(static_cast<int>(list.size()))));
    std::uint8_t* to = table.data();
    const auto append = [&](const void* from, std::size_t bytes) { std::memcpy(to, from, bytes), to += bytes; };
    append(&head, sizeof head);
    append(replicas.data(), replicas.size() * sizeof replicas[0]);
    append(list.data(), list.size() * sizeof list[0]);
    return table;
  }
};

// 64-bit FNV-1a of integers.
inline std::uint64_t placementHash(int logicalExperts, const std::vector<std::int32_t>& logicalOf) {
  std::uint64_t hash = 14695981039346656037u;
  const auto add = [&](std::int32_t value) {
    for (int shift = 0; shift < 32; shift += 8) {
      hash = (hash ^ (static_cast<std::uint32_t>(value) >> shift & 0xff)) * 1099511628211u;
    }
  };
  add(logicalExperts);
  for (const std::int32_t logical : logicalOf) add(logical);
  return hash;
}
// A part of a hash that fits a field and is not 0.
inline std::uint32_t hashPart(std::uint64_t hash, const TermField& field) {
  const std::uint64_t values = (std::uint64_t{1} << field.bits) - 1;
  return static_cast<std::uint32_t>(field.packed(static_cast<std::int64_t>(1 + hash % values)));
}

// The living copies of an expert that a rank uses: its own, else those of its domain, else all. -1: none lives.
inline std::vector<std::int32_t> nearestCopies(const PlacementRoom& room, const std::vector<std::int32_t>& copies) {
  std::vector<std::int32_t> own, domain, all;
  for (const std::int32_t physical : copies) {
    if (!room.lives(physical)) continue;
    const int rank = room.map.rankOf(physical);
    all.push_back(physical);
    if (rank == room.rank) own.push_back(physical);
    if (rank / room.domainSize == room.rank / room.domainSize) domain.push_back(physical);
  }
  if (all.empty() && !copies.empty()) return {-1};
  return !own.empty() ? own : !domain.empty() ? domain : all;
}

// The table of one rank, placementBytes(map.experts) long. `logicalOf`: the logical expert of each physical one; -1:
// none. All ranks compute the same fingerprint of the same placement.
inline std::vector<std::uint8_t> placementTable(const PlacementRoom& room, int logicalExperts,
                                                const std::vector<std::int32_t>& logicalOf) {
  std::vector<std::vector<std::int32_t>> copies(static_cast<std::size_t>(logicalExperts));
  for (std::size_t physical = 0; physical < logicalOf.size(); ++physical) {
    const std::int32_t logical = logicalOf[physical];
    if (logical >= 0) copies[static_cast<std::size_t>(logical)].push_back(static_cast<std::int32_t>(physical));
  }
  PlacementParts parts(room.map.experts);
  const std::uint64_t hash = placementHash(logicalExperts, logicalOf);
  parts.head = {logicalExperts, hashPart(hash, handle_terms::kPlacement),
                hashPart(hash >> 32, handle_terms::kPlacementRest), 0};
  std::size_t end = 0;  // end of the list
  for (std::size_t e = 0; e < copies.size(); ++e) {
    const std::vector<std::int32_t> nearest = nearestCopies(room, copies[e]);
    const std::size_t count = nearest.size(), rank = static_cast<std::size_t>(room.rank);
    const auto copyCount = static_cast<std::int32_t>(count);
    parts.replicas[e] = {copyCount, count == 1 ? nearest[0] : static_cast<std::int32_t>(end), divisorOf(copyCount)};
    if (count == 1) continue;
    for (std::size_t turn = 0; turn < count; ++turn) parts.list[end + turn] = nearest[(turn + rank) % count];
    end += count;
  }
  return parts.packed();
}

// The table without a placement. Each expert is its own only copy, and the terms are those of a handle without a
// placement.
inline std::vector<std::uint8_t> noPlacementTable(const PlacementRoom& room) {
  PlacementParts parts(room.map.experts);
  parts.head.logicalExperts = room.map.experts;
  for (int e = 0; e < room.map.experts; ++e) parts.replicas[static_cast<std::size_t>(e)] = {1, e, divisorOf(1)};
  return parts.packed();
}

// The table of a rank that uses only its own experts. The `named` experts from `first` on become the numbers
// 0..ownExperts - 1 of a map of their own. The others are on no rank of that map.
inline std::vector<std::uint8_t> ownExpertsTable(int named, int first, int ownExperts) {
  PlacementParts parts(named);
  parts.head.logicalExperts = named;
  for (int e = 0; e < named; ++e) {
    const int own = e - first;
    parts.replicas[static_cast<std::size_t>(e)] = {1, own >= 0 && own < ownExperts ? own : -1, divisorOf(1)};
  }
  return parts.packed();
}

}  // namespace moe
