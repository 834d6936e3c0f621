// The frames on a connection between two ranks: a header of 24 bytes, little endian, then the bytes of a put. A
// connection is a queue: what comes later lands later.
#pragma once

#include <fmt/format.h>

#include <bit>
#include <cstdint>
#include <string>
#include <type_traits>

namespace moe {

enum class TcpKind : std::uint32_t {
  bytes = 0x54454f01,    // "\1OET": bytes for the window
  word = 0x54454f02,     // a word for the window
  drain = 0x54454f03,    // the sender posts no more and asks for drained; it may close the connection from now on
  drained = 0x54454f04,  // everything that came before your drain is in the window
};

struct TcpFrame {
  TcpKind kind;
  std::uint32_t bytes;   // Bytes: how many follow
  std::uint64_t target;  // offset in the receiver's window, of Bytes and Word
  std::uint64_t word;    // Word: the word
};
static_assert(sizeof(TcpFrame) == 24 && std::is_trivially_copyable_v<TcpFrame>);
static_assert(std::endian::native == std::endian::little);

// Why a receiver with a window of this size must not go on; empty if it may.
inline std::string faultOf(const TcpFrame& frame, std::uint64_t windowBytes) {
  const auto within = [&](std::uint64_t bytes, std::uint64_t align) {
    return bytes <= windowBytes && frame.target <= windowBytes - bytes && frame.target % align == 0;
  };
  switch (frame.kind) {
    case TcpKind::bytes:
      if (frame.bytes > 0 && frame.bytes % 4 == 0 && within(frame.bytes, 4)) return {};
      return fmt::format("it put {} bytes at offset {} of a window of {}", frame.bytes, frame.target, windowBytes);
    case TcpKind::word:
      if (frame.bytes == 0 && within(sizeof frame.word, sizeof frame.word)) return {};
      return fmt::format("it put a word at offset {} of a window of {} bytes", frame.target, windowBytes);
    case TcpKind::drain:
    case TcpKind::drained:
      if (frame.bytes == 0) return {};
      break;
  }
  return fmt::format("it sent a frame of kind {:#x} with {} bytes", static_cast<std::uint32_t>(frame.kind),
                     frame.bytes);
}

}  // namespace moe
