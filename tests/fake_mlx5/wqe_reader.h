// Reads a WQE as an adapter would, but strictly: it complains even about what a real adapter may ignore. It uses the
// offsets of the format, not device/queue/mlx5/wqe.h.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace moe::test {

struct Work {
  int opcode = 0;
  bool signalled = false, fenced = false;
  std::uint64_t slots = 1;
  std::uint32_t immediate = 0;  // as it lies in memory
  std::uint64_t remoteAddress = 0;
  std::uint32_t rkey = 0;
  std::uint64_t operand[2] = {};  // of atomics: add or swap, compare
  std::uint64_t localAddress = 0;
  std::uint32_t lkey = 0;
  std::uint32_t bytes = 0;
  std::vector<std::uint8_t> inlined;  // if not empty, there is no local memory

  bool isAtomic() const { return opcode == 0x11 || opcode == 0x12; }
  bool isWrite() const { return opcode == 0x08; }
  bool isRead() const { return opcode == 0x10; }
  bool isSend() const { return opcode == 0x0a || opcode == 0x0b; }
  bool hasImmediate() const { return opcode == 0x09 || opcode == 0x0b; }
};

inline constexpr std::size_t kWqeBytesMax = 128;

// What an adapter in software puts into slots that it has executed. A poster may leave it where no adapter looks.
inline constexpr std::uint32_t kPoison = 0xdbdbdbdb;

// From an image of two slots. The complaint is empty if all is well.
struct ReadWqe {
  Work work;
  std::string complaint;
};
ReadWqe readWqe(const std::uint8_t* image, std::uint32_t queuePair, std::uint16_t index);

// The slots that a WQE takes by its length, 1 or 2.
std::uint64_t slotsOfWqe(const std::uint8_t* image);

}  // namespace moe::test
