// The unit that travels on every connection of the bootstrap, and the parser that finds it in a byte stream. The code
// is pure: it has no sockets. Whatever bytes come in, the parser returns valid frames or stops with a complaint. It
// never holds more than one unfinished frame, which is no longer than its type allows.
//
// Header, 16 bytes, little endian: magic u32, type u8, version u8, sequence u16, length u32, rank u32.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace moe::bootstrap {

enum class FrameType : std::uint8_t {
  hello = 1,         // handshake: client's nonce
  challenge = 2,     // handshake: server's nonce and proof
  proof = 3,         // handshake: client's proof
  join = 4,          // rank -> rendezvous: rank, nranks, timeout, listener addresses
  table = 5,         // rendezvous -> rank: session nonce, all listener addresses; to a newcomer: the state of the group
  joined = 6,        // rank -> rendezvous: connected to the tree, needs the rendezvous no more
  refusal = 7,       // both ways between rank and rendezvous: the join has failed; result and sentence
  attach = 8,        // child -> parent: first frame of a tree connection
  state = 9,         // both ways after Attach: who has left, who is leaving, and the incarnation of each rank
  gather = 10,       // up the tree: one rank's blob
  result = 11,       // down the tree: one rank's blob
  waiting = 12,      // down the tree: the ranks that the collective is waiting for
  failure = 13,      // flooded: rank has failed; result and sentence
  goodbye = 14,      // flooded: rank leaves
  goodbyeAck = 15,   // neighbour -> leaving rank: your goodbye was passed on
  fdRequest = 16,    // asks for the file descriptor
  fdReply = 17,      // carries the descriptor
  leaving = 18,      // flooded: rank has no more work, and leaves when the ranks it waits for have none
  late = 19,         // flooded: a wait of rank ended by its deadline; the rank waited for, result and sentence
  ask = 20,          // to a neighbour: are you alive?
  alive = 21,        // the answer, at once
  dumpRequest = 22,  // asks a watched communicator for its latest steps
  dumpReply = 23,    // them, as text
  newcomer = 24      // newcomer -> survivor: as join, and the newcomer's card
};

constexpr std::size_t kFrameHeaderBytes = 16;
constexpr std::size_t kPayloadBytesMax = std::size_t{16} << 20;
constexpr std::size_t kSentenceBytesMax = 1024;
constexpr std::size_t kCardBytesMax = 4096;
constexpr std::uint32_t kRankCountMax = 65536;

using FrameMask = std::uint32_t;

template <class... Types>
constexpr FrameMask maskOf(Types... types) {
  return (FrameMask{0} | ... | (FrameMask{1} << static_cast<unsigned>(types)));
}

constexpr FrameMask kHandshakeFrames = maskOf(FrameType::hello, FrameType::challenge, FrameType::proof);

struct Frame {
  FrameType type;
  std::uint16_t sequence;
  std::uint32_t rank;  // the rank that the frame is about, below kRankCountMax
  std::span<const std::uint8_t> payload;
};

// The header and the payload as bytes. Throws if the payload is not within the bounds of its type.
std::vector<std::uint8_t> encodeFrame(FrameType type, std::uint32_t rank, std::span<const std::uint8_t> payload = {},
                                      std::uint16_t sequence = 0);

class FrameParser {
 public:
  explicit FrameParser(FrameMask accepted) : accepted_(accepted) {}

  // From now on only frames of these types are valid. This applies also to frames that next() has not returned yet.
  void accept(FrameMask accepted) { accepted_ = accepted; }

  void feed(std::span<const std::uint8_t> bytes);

  // The next whole frame. Nothing if more bytes are needed or the stream is broken. The payload is valid until the next
  // feed().
  std::optional<Frame> next();

  bool frameReady();                     // next() would return a frame
  std::vector<std::uint8_t> takeRest();  // bytes that next() has not returned; no frames any more
  bool broken() const { return !complaint_.empty(); }
  bool otherVersion() const { return otherVersion_; }  // broken by a frame of another version of the protocol
  const std::string& complaint() const { return complaint_; }
  std::size_t heldBytes() const { return buffer_.size() - offset_; }

 private:
  struct Header {
    Frame frame;
    std::size_t length;
  };
  std::optional<Header> peek();  // the header of a whole frame
  std::optional<Header> breakWith(std::string complaint);

  FrameMask accepted_;
  std::vector<std::uint8_t> buffer_;
  std::size_t offset_ = 0;  // bytes of buffer_ already returned
  bool otherVersion_ = false;
  std::string complaint_;
};

}  // namespace moe::bootstrap
