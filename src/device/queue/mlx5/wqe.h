// Work-queue elements (WQEs) of mlx5 send queues: the commands that the library posts, in the adapter's own form. A WQE
// consists of segments of 16 bytes: control, remote address, and further ones for the operation. It is made in
// registers and takes one or two slots of 64 bytes in the queue (send_queue.h). tests/fake_mlx5 compares every byte
// with the output of libmlx5.
#pragma once

#include "device/queue/mlx5/byte_order.h"

namespace moe::mlx5 {

enum class Opcode : std::uint8_t {
  rdmaWrite = 0x08,
  rdmaWriteImm = 0x09,
  rdmaRead = 0x10,
  compareSwap = 0x11,
  fetchAdd = 0x12,
};

// A bit of WqeHead::flags.
inline constexpr std::uint8_t kSignalled = 2 << 2;  // always makes a completion; without it, only a failure does

struct WqeHead {
  std::uint32_t queuePair;
  std::uint16_t index;  // low bits of the slot counter at the first slot of this WQE
  std::uint8_t flags;
};

struct RemoteAddress {
  std::uint64_t address;
  std::uint32_t rkey;
};

struct LocalRange {
  std::uint64_t address;
  std::uint32_t lkey;
  std::uint32_t bytes;  // less than 2^31
};

inline constexpr int kSlotSegments = 4;
inline constexpr std::uint32_t kSlotBytes = 64;

MOE_LANES constexpr int slotsOfSegments(int segments) {
  return (segments + kSlotSegments - 1) / kSlotSegments;
}

template <int kCount>
struct Wqe {
  static constexpr int kSegments = kCount, kSlots = slotsOfSegments(kCount);
  Quad segment[kCount];
};

// ---- Segments

// `immediate` is passed on in its memory order. Verbs programs read it in network order.
MOE_LANES constexpr Quad controlSegment(Opcode opcode, const WqeHead& head, int segments, std::uint32_t immediate = 0) {
  return {bigEndian(std::uint32_t{head.index} << 8 | static_cast<std::uint32_t>(opcode)),
          bigEndian(head.queuePair << 8 | static_cast<std::uint32_t>(segments)), bigEndian(std::uint32_t{head.flags}),
          immediate};
}

MOE_LANES constexpr Quad remoteSegment(const RemoteAddress& remote) {
  return {highWord(remote.address), lowWord(remote.address), bigEndian(remote.rkey), 0};
}

MOE_LANES constexpr Quad dataSegment(const LocalRange& local) {
  return {bigEndian(local.bytes), bigEndian(local.lkey), highWord(local.address), lowWord(local.address)};
}

// ---- Operations

MOE_LANES constexpr Wqe<3> rdmaWrite(const WqeHead& head, const RemoteAddress& to, const LocalRange& from) {
  return {{controlSegment(Opcode::rdmaWrite, head, 3), remoteSegment(to), dataSegment(from)}};
}

// ---- Inline data: bytes that travel in the WQE itself, after a word with their number. It is used for flags.

inline constexpr std::uint32_t kInlineData = 1u << 31;
inline constexpr int kInlineWordsMax = 15;  // as many as fit into two slots

template <int kCount>
struct InlineWords {
  static_assert(kCount >= 1 && kCount <= kInlineWordsMax);
  static constexpr int kSegments = 2 + (1 + kCount + 3) / 4;
  std::uint32_t word[kCount];  // in the form that they have in the peer's memory
};

MOE_LANES constexpr InlineWords<2> inlineFlag(std::uint64_t flag) {
  return {{static_cast<std::uint32_t>(flag), static_cast<std::uint32_t>(flag >> 32)}};
}

template <int kCount>
MOE_LANES constexpr auto inlineWrite(const WqeHead& head, const RemoteAddress& to, const InlineWords<kCount>& data) {
  constexpr int kSegments = InlineWords<kCount>::kSegments;
  std::uint32_t word[4 * (kSegments - 2)] = {bigEndian(kInlineData | 4u * kCount)};
  for (int i = 0; i < kCount; ++i) word[1 + i] = data.word[i];
  Wqe<kSegments> wqe = {{controlSegment(Opcode::rdmaWrite, head, kSegments), remoteSegment(to)}};
  for (int i = 0; i < kSegments - 2; ++i) {
    wqe.segment[2 + i] = {word[4 * i], word[4 * i + 1], word[4 * i + 2], word[4 * i + 3]};
  }
  return wqe;
}

}  // namespace moe::mlx5
