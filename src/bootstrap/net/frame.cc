#include "bootstrap/net/frame.h"

#include <fmt/format.h>

#include <array>

#include "base/error.h"
#include "bootstrap/net/wire.h"

namespace moe::bootstrap {
namespace {

constexpr std::uint32_t kMagic = 0x42454f4d;  // "MOEB"
constexpr std::uint8_t kVersion = 5;

struct Bounds {
  std::size_t least;
  std::size_t most;
};

// Indexed by FrameType; a type with most < least does not exist.
constexpr std::array<Bounds, 25> kBounds = {{
    {1, 0},                                   // no type 0
    {16, 16},                                 // Hello
    {48, 48},                                 // Challenge
    {32, 32},                                 // Proof
    {13, 13 + 4 * 20},                        // Join
    {16, kPayloadBytesMax},                   // Table
    {0, 0},                                   // Joined
    {4, 4 + kSentenceBytesMax},               // Refusal
    {4, 4},                                   // Attach
    {3, std::size_t{kRankCountMax} / 4 * 5},  // State
    {0, kPayloadBytesMax},                    // Gather
    {0, kPayloadBytesMax},                    // Result
    {4, 4 + 4 * 64},                          // Waiting
    {4, 4 + kSentenceBytesMax},               // Failure
    {0, 0},                                   // Goodbye
    {0, 0},                                   // GoodbyeAck
    {0, 0},                                   // FdRequest
    {0, 0},                                   // FdReply
    {0, 0},                                   // Leaving
    {8, 8 + kSentenceBytesMax},               // Late
    {0, 0},                                   // Ask
    {0, 0},                                   // Alive
    {0, 0},                                   // DumpRequest
    {0, kPayloadBytesMax},                    // DumpReply
    {5, 5 + 4 * 20 + kCardBytesMax}           // Newcomer
}};

const Bounds& boundsOf(std::uint8_t type) {
  return kBounds[type < kBounds.size() ? type : 0];
}

}  // namespace

std::vector<std::uint8_t> encodeFrame(FrameType type, std::uint32_t rank, std::span<const std::uint8_t> payload,
                                      std::uint16_t sequence) {
  const Bounds& bounds = boundsOf(static_cast<std::uint8_t>(type));
  if (payload.size() < bounds.least || payload.size() > bounds.most) {
    throw Error(moeInternalError, fmt::format("a bootstrap frame of type {} cannot have {} bytes",
                                              static_cast<int>(type), payload.size()));
  }
  Writer out;
  out.u32(kMagic);
  out.u8(static_cast<std::uint8_t>(type));
  out.u8(kVersion);
  out.u16(sequence);
  out.u32(static_cast<std::uint32_t>(payload.size()));
  out.u32(rank);
  out.bytes(payload);
  return out.take();
}

void FrameParser::feed(std::span<const std::uint8_t> bytes) {
  if (broken()) return;
  buffer_.erase(buffer_.begin(), buffer_.begin() + static_cast<std::ptrdiff_t>(offset_));
  offset_ = 0;
  buffer_.insert(buffer_.end(), bytes.begin(), bytes.end());
}

std::optional<FrameParser::Header> FrameParser::breakWith(std::string complaint) {
  complaint_ = std::move(complaint);
  buffer_.clear();
  offset_ = 0;
  return std::nullopt;
}

std::optional<FrameParser::Header> FrameParser::peek() {
  if (broken() || heldBytes() < kFrameHeaderBytes) return std::nullopt;
  Reader in(std::span<const std::uint8_t>(buffer_).subspan(offset_, kFrameHeaderBytes));
  if (in.u32() != kMagic) return breakWith("it does not speak the moecomm bootstrap protocol");
  const std::uint8_t type = in.u8();
  const std::uint8_t version = in.u8();
  if (version != kVersion) {
    otherVersion_ = true;
    return breakWith(fmt::format("it speaks bootstrap version {}, this is version {}", version, kVersion));
  }
  const std::uint16_t sequence = in.u16();
  const std::size_t length = in.u32();
  const std::uint32_t rank = in.u32();
  const Bounds& bounds = boundsOf(type);
  if (bounds.most < bounds.least || (accepted_ & maskOf(type)) == 0) {
    return breakWith(fmt::format("a frame of type {} is not allowed here", type));
  }
  if (length < bounds.least || length > bounds.most) {
    return breakWith(fmt::format("a frame of type {} cannot have {} bytes", type, length));
  }
  if (rank >= kRankCountMax) return breakWith(fmt::format("a frame names rank {}", rank));
  if (heldBytes() < kFrameHeaderBytes + length) return std::nullopt;
  return Header{Frame{static_cast<FrameType>(type), sequence, rank,
                      std::span<const std::uint8_t>(buffer_).subspan(offset_ + kFrameHeaderBytes, length)},
                length};
}

std::optional<Frame> FrameParser::next() {
  const auto header = peek();
  if (!header) return std::nullopt;
  offset_ += kFrameHeaderBytes + header->length;
  return header->frame;
}

bool FrameParser::frameReady() {
  return peek().has_value();
}

std::vector<std::uint8_t> FrameParser::takeRest() {
  std::vector<std::uint8_t> rest(buffer_.begin() + static_cast<std::ptrdiff_t>(offset_), buffer_.end());
  buffer_.clear();
  offset_ = 0;
  return rest;
}

}  // namespace moe::bootstrap
