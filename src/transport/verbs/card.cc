#include "transport/verbs/card.h"

#include <fmt/format.h>

#include <cstring>

#include "base/error.h"

namespace moe::verbs {
namespace {

constexpr std::uint32_t kMagic = 0x56454f4d;  // "MOEV"
constexpr std::uint32_t kVersion = 2;

// As it is sent; the queues follow.
struct Head {
  std::uint32_t magic = kMagic;
  std::uint32_t version = kVersion;
  std::int32_t layer = 0;
  std::int32_t mtu = 0;
  std::array<std::uint8_t, 16> gid{};
  std::uint64_t window = 0;
  std::uint64_t windowBytes = 0;
  std::uint32_t dataKey = 0;
  std::uint32_t wordKey = 0;
  std::uint32_t lid = 0;
  std::int32_t connections = 0;
  std::uint64_t queueCount = 0;
};
static_assert(sizeof(Head) == 72 && sizeof(CardQueue) == 8);

}  // namespace

CardBytes encode(const Card& card) {
  Head head;
  head.layer = static_cast<std::int32_t>(card.address.layer);
  head.mtu = card.mtu;
  head.gid = card.address.gid;
  head.window = card.window;
  head.windowBytes = card.windowBytes;
  head.dataKey = card.dataKey;
  head.wordKey = card.wordKey;
  head.lid = card.lid;
  head.connections = card.connections;
  head.queueCount = card.queues.size();
  CardBytes bytes(sizeof head + card.queues.size() * sizeof(CardQueue));
  std::memcpy(bytes.data(), &head, sizeof head);
  std::memcpy(bytes.data() + sizeof head, card.queues.data(), bytes.size() - sizeof head);
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
  const auto count = static_cast<std::size_t>(nranks) * static_cast<std::size_t>(head.connections);
  if (head.queueCount != count || bytes.size() != sizeof head + count * sizeof(CardQueue)) {
    throw refuse(
        fmt::format("is for {} ranks, not {}", head.queueCount / static_cast<unsigned>(head.connections), nranks));
  }
  Card card{{static_cast<topology::LinkLayer>(head.layer), head.gid},
            static_cast<std::uint16_t>(head.lid),
            head.mtu,
            head.window,
            head.windowBytes,
            head.dataKey,
            head.wordKey,
            head.connections,
            std::vector<CardQueue>(count)};
  std::memcpy(card.queues.data(), bytes.data() + sizeof head, count * sizeof(CardQueue));
  return card;
}

}  // namespace moe::verbs
