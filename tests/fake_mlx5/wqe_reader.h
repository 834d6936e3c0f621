// Reads a WQE as an adapter would, but strictly. It reports even what a real adapter may ignore. It uses the offsets of
// the format, not device/queue/mlx5/wqe.h.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace moe::test {

struct Work {
  int opcode = 0;
  bool signalled = false, fenced = false;
  std::uint64_t slots = 1;
  std::uint32_t immediate = 0;  // in the byte order of memory
  std::uint64_t remoteAddress = 0;
  std::uint32_t rkey = 0;
  std::uint64_t operand[2] = {};  // atomics: value to add or swap, value to compare
  std::uint64_t localAddress = 0;
  std::uint32_t lkey = 0;
  std::uint32_t bytes = 0;
  std::vector<std::uint8_t> inlined;  // if not empty, the WQE has no local memory

  bool isAtomic() const { return opcode == 0x11 || opcode == 0x12; }
  bool isWrite() const { return opcode == 0x08; }
  bool isRead() const { return opcode == 0x10; }
  bool isSend() const { return opcode == 0x0a || opcode == 0x0b; }
  bool hasImmediate() const { return opcode == 0x09 || opcode == 0x0b; }
};

inline constexpr std::size_t kWqeBytesMax = 128;

// The pattern that an adapter in software writes into executed slots. A poster may leave it in fields that no adapter
// reads.
inline constexpr std::uint32_t kPoison = 0xdbdbdbdb;

// Reads an image of two slots. `complaint` is empty if all is well.
struct ReadWqe {
  Work work;
  std::string complaint;
};
ReadWqe readWqe(const std::uint8_t* image, std::uint32_t queuePair, std::uint16_t index);

// The number of slots of a WQE, 1 or 2, from its length.
std::uint64_t slotsOfWqe(const std::uint8_t* image);

}  // namespace moe::test
