// A range of addresses that stays reserved while the memory behind it changes. The window of a rank lies in one, and so
// does each peer's window as it is mapped here. Callers, prepared calls and captured graphs keep the addresses. The
// owner of a window makes a handle of its memory, by which peers map it.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <variant>

#include "backend/memory.h"
#include "base/fd.h"

namespace moe {

// Names memory of a GPU to all processes whose GPUs are in the same clique of an NVLink fabric, on any host.
using FabricHandle = std::array<std::uint8_t, 64>;

// What a process maps the memory of another one by: a descriptor, on the same host, or a handle of the fabric.
using MemoryHandle = std::variant<Fd, FabricHandle>;

class AddressRange {
 public:
  virtual ~AddressRange() = default;
  AddressRange(const AddressRange&) = delete;
  AddressRange& operator=(const AddressRange&) = delete;

  std::uint8_t* base() const { return base_; }
  std::size_t bytes() const { return bytes_; }
  bool mapped() const { return mapped_; }

  // Takes the memory out of the range. No step may be running that uses it. Later accesses are faults, until map().
  // Without memory in the range it does nothing. Throws moeSystemError or moeCudaError.
  virtual void unmap() = 0;
  // Maps the memory of `handle`, which has bytes() bytes, into the range, which has none. Throws, and leaves it
  // without.
  virtual void map(const MemoryHandle& handle) = 0;
  // Maps memory of this process alone, whatever was mapped. Its contents are of no use: parts of it may be the same
  // memory. So stores of steps hurt nobody. No step may be running. Throws as unmap() does.
  virtual void mapScratch() = 0;

 protected:
  AddressRange() = default;
  std::uint8_t* base_ = nullptr;
  std::size_t bytes_ = 0;
  bool mapped_ = false;
};

// The range as memory: it keeps the addresses reserved.
inline Memory memoryOf(const std::shared_ptr<AddressRange>& range) {
  return {range, range->base()};
}

}  // namespace moe
