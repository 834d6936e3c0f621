// A range of addresses that stays reserved while the memory behind it changes. The window of a rank lies in one, and so
// does each peer's window as it is mapped here. Callers, prepared calls and captured graphs keep the addresses. The
// memory comes as a file descriptor, which the owner of a window makes and its peers fetch.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "backend/memory.h"

namespace moe {

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
  // Maps the memory of `fd`, which has bytes() bytes, into the range, which has none. Throws, and leaves it without.
  virtual void map(int fd) = 0;
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
