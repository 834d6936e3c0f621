// What travels on a connection between two ranks: a header of 24 bytes, little endian, then the bytes of a put. A
// connection is a queue: what comes later lands later.
#pragma once

#include <fmt/format.h>

#include <bit>
#include <cstdint>
#include <string>
#include <type_traits>

namespace moe {

enum class TcpKind : std::uint32_t {
  Bytes = 0x54454f01,    // "\1OET": bytes for the window
  Word = 0x54454f02,     // a word for the window
  Drain = 0x54454f03,    // the sender posts no more and asks for Drained; it may close the connection from now on
  Drained = 0x54454f04,  // everything that came before your Drain is in the window
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
    case TcpKind::Bytes:
      if (frame.bytes > 0 && frame.bytes % 4 == 0 && within(frame.bytes, 4)) return {};
      return fmt::format("it put {} bytes at offset {} of a window of {}", frame.bytes, frame.target, windowBytes);
    case TcpKind::Word:
      if (frame.bytes == 0 && within(sizeof frame.word, sizeof frame.word)) return {};
      return fmt::format("it put a word at offset {} of a window of {} bytes", frame.target, windowBytes);
    case TcpKind::Drain:
    case TcpKind::Drained:
      if (frame.bytes == 0) return {};
      break;
  }
  return fmt::format("it sent a frame of kind {:#x} with {} bytes", static_cast<std::uint32_t>(frame.kind),
                     frame.bytes);
}

}  // namespace moe
