// The memory that a process has registered with the software adapter: which addresses a key covers, and for which
// access.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>

#include "fake_mlx5/gpu_memory.h"

namespace moe::test {

// As in verbs.
inline constexpr unsigned kAccessLocalWrite = 1, kAccessRemoteWrite = 2, kAccessRemoteRead = 4, kAccessRemoteAtomic = 8,
                          kAccessRelaxed = 1u << 20;

struct Region {
  std::uint32_t key, handle, pd;
  std::uint64_t start, bytes;  // where the memory is
  std::uint64_t address;       // how peers and WQEs address its start
  unsigned access;
  std::shared_ptr<GpuMemory> gpu;  // null: the program's own memory

  std::uint64_t placeOf(std::uint64_t at) const { return start + (at - address); }
};

class MemoryRegions {
 public:
  void add(const Region& region) { regions_[region.key] = region; }
  void remove(std::uint32_t handle) {
    std::erase_if(regions_, [&](const auto& entry) { return entry.second.handle == handle; });
  }
  std::size_t removeAllOf(std::uint32_t pd) {
    return std::erase_if(regions_, [&](const auto& entry) { return entry.second.pd == pd; });
  }
  bool hasAnyOf(std::uint32_t pd) const {
    return std::any_of(regions_.begin(), regions_.end(), [&](const auto& entry) { return entry.second.pd == pd; });
  }

  // Returns null unless the key covers all bytes for this access and belongs to the protection domain.
  const Region* find(std::uint32_t key, std::uint32_t pd, std::uint64_t at, std::uint64_t bytes,
                     unsigned access) const {
    const auto found = regions_.find(key);
    if (found == regions_.end()) return nullptr;
    const Region& region = found->second;
    const std::uint64_t offset = at - region.address;  // wraps to a huge value if `at` is before the region
    const bool covers = offset <= region.bytes && bytes <= region.bytes - offset;
    return covers && region.pd == pd && (region.access & access) == access ? &region : nullptr;
  }

 private:
  std::map<std::uint32_t, Region> regions_;
};

// Returns false if a GPU copy fails.
bool readMemory(const Region& region, std::uint64_t at, void* to, std::uint64_t bytes);
// Aligned words of 8 bytes land whole. Nothing orders them.
bool writeMemory(const Region& region, std::uint64_t at, const void* from, std::uint64_t bytes);

}  // namespace moe::test
