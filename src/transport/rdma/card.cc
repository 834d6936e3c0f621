#include "transport/rdma/card.h"

#include <fmt/format.h>

#include <cstring>

#include "base/error.h"

namespace moe::verbs {
namespace {

constexpr std::uint32_t kMagic = 0x56454f4d;  // "MOEV"
constexpr std::uint32_t kVersion = 3;
constexpr std::uint32_t kRailsMax = 64;

// The head as sent. The rails follow it, then the queues.
struct Head {
  std::uint32_t magic = kMagic;
  std::uint32_t version = kVersion;
  std::uint64_t window = 0;
  std::uint64_t windowBytes = 0;
  std::int32_t connections = 0;
  std::uint32_t railCount = 0;
  std::uint64_t queueCount = 0;
};
struct SentRail {
  std::int32_t layer = 0;
  std::int32_t mtu = 0;
  std::array<std::uint8_t, 16> gid{};
  std::uint32_t dataKey = 0;
  std::uint32_t wordKey = 0;
  std::uint64_t lid = 0;
};
static_assert(sizeof(Head) == 40 && sizeof(SentRail) == 40 && sizeof(CardQueue) == 8);

SentRail packed(const CardRail& rail) {
  return {
      static_cast<std::int32_t>(rail.address.layer), rail.mtu, rail.address.gid, rail.dataKey, rail.wordKey, rail.lid};
}

CardRail unpacked(const SentRail& sent) {
  return {{static_cast<topology::LinkLayer>(sent.layer), sent.gid},
          static_cast<std::uint16_t>(sent.lid),
          sent.mtu,
          sent.dataKey,
          sent.wordKey};
}

}  // namespace

CardBytes encode(const Card& card) {
  Head head;
  head.window = card.window;
  head.windowBytes = card.windowBytes;
  head.connections = card.connections;
  head.railCount = static_cast<std::uint32_t>(card.rails.size());
  head.queueCount = card.queues.size();
  const std::size_t railBytes = card.rails.size() * sizeof(SentRail);
  CardBytes bytes(sizeof head + railBytes + card.queues.size() * sizeof(CardQueue));
  std::memcpy(bytes.data(), &head, sizeof head);
  std::uint8_t* at = bytes.data() + sizeof head;
  for (const CardRail& rail : card.rails) {
    const SentRail sent = packed(rail);
    std::memcpy(at, &sent, sizeof sent);
    at += sizeof sent;
  }
  std::memcpy(at, card.queues.data(), card.queues.size() * sizeof(CardQueue));
  return bytes;
}

Card decode(const CardBytes& bytes, int rank, int nranks) {
  const auto refuse = [rank](const std::string& why) {
    return Error(moeInvalidUsage, fmt::format("RDMA: what rank {} says about its connections {}", rank, why));
  };
  Head head;
  if (bytes.size() < sizeof head) throw refuse(fmt::format("has {} bytes, too few", bytes.size()));
  std::memcpy(&head, bytes.data(), sizeof head);
  if (head.magic != kMagic) throw refuse("is of another transport");
  if (head.version != kVersion) throw refuse(fmt::format("is of version {}, not {}", head.version, kVersion));
  if (head.connections < 1) throw refuse(fmt::format("has {} connections with each rank", head.connections));
  if (head.railCount < 1 || head.railCount > kRailsMax) throw refuse(fmt::format("has {} adapters", head.railCount));
  const auto count = static_cast<std::size_t>(nranks) * static_cast<std::size_t>(head.connections);
  if (head.queueCount != count ||
      bytes.size() != sizeof head + head.railCount * sizeof(SentRail) + count * sizeof(CardQueue)) {
    throw refuse(
        fmt::format("is for {} ranks, not {}", head.queueCount / static_cast<unsigned>(head.connections), nranks));
  }
  Card card{head.window, head.windowBytes, head.connections, {}, std::vector<CardQueue>(count)};
  const std::uint8_t* at = bytes.data() + sizeof head;
  for (std::uint32_t i = 0; i < head.railCount; ++i, at += sizeof(SentRail)) {
    SentRail sent;
    std::memcpy(&sent, at, sizeof sent);
    card.rails.push_back(unpacked(sent));
  }
  std::memcpy(card.queues.data(), at, count * sizeof(CardQueue));
  return card;
}

}  // namespace moe::verbs
