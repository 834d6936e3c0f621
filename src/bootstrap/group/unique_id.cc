#include "bootstrap/group/unique_id.h"

#include <algorithm>

#include "base/error.h"
#include "bootstrap/net/find_addresses.h"
#include "bootstrap/net/socket.h"

namespace moe::bootstrap {
namespace {

constexpr std::uint32_t kIdMagic = 0x55454f4d;  // "MOEU"
constexpr std::uint8_t kIdVersion = 2;
constexpr std::uint8_t kServed = 1, kReplaces = 2;  // kinds; 0: nobody serves it yet
constexpr std::size_t kAddressBytes = 20;

// Detects ids that were cut or garbled on their way. It does not prevent forgery, but a forged secret is useless.
std::uint64_t checksum(std::span<const std::uint8_t> bytes) {
  return Reader(deriveKey(Key{}, "checksum", bytes)).u64();
}

}  // namespace

moeUniqueId_t encodeUniqueId(const IdContents& contents) {
  moeUniqueId_t id{};
  Writer out;
  out.u32(kIdMagic);
  out.u8(kIdVersion);
  out.u8(contents.replaces ? kReplaces : contents.served ? kServed : 0);
  out.bytes(contents.secret);
  writeAddresses(out, contents.addresses);
  std::copy(out.view().begin(), out.view().end(), id.bytes);
  Writer sum;
  sum.u64(checksum(std::span(id.bytes).first(sizeof(id.bytes) - 8)));
  std::copy(sum.view().begin(), sum.view().end(), id.bytes + sizeof(id.bytes) - 8);
  return id;
}
static_assert(4 + 1 + 1 + 16 + 1 + kAddressCountMax * kAddressBytes + 8 <= sizeof(moeUniqueId_t::bytes));

IdContents decodeUniqueId(const moeUniqueId_t& id) {
  const std::span<const std::uint8_t> bytes(id.bytes);
  Reader in(bytes);
  if (in.u32() != kIdMagic) throw Error(moeInvalidArgument, "id is not a unique id of moecomm");
  if (in.u8() != kIdVersion) throw Error(moeInvalidArgument, "id was made by another version of moecomm");
  IdContents contents;
  const std::uint8_t kind = in.u8();
  contents.served = kind != 0;
  contents.replaces = kind == kReplaces;
  in.bytes(contents.secret);
  const bool addressesGood = readAddresses(in, contents.addresses);
  if (!addressesGood || Reader(bytes.last(8)).u64() != checksum(bytes.first(bytes.size() - 8))) {
    throw Error(moeInvalidArgument, "id is damaged");
  }
  return contents;
}

moeUniqueId_t createUniqueId(std::chrono::milliseconds timeout, const std::string& interfaceName) {
  Listener listener = listenTcp(localAddresses(interfaceName), 0);
  const IdContents contents{true, randomKey(), listener.addresses};
  const ServedMeeting meeting(std::move(listener.sockets), contents.secret, timeout, -1);
  return encodeUniqueId(contents);
}

moeUniqueId_t uniqueIdFor(const std::string& host, std::uint16_t port, const std::array<std::uint8_t, 16>& secret,
                          std::chrono::milliseconds timeout) {
  if (port == 0) throw Error(moeInvalidArgument, "the port of the meeting point is 0");
  return encodeUniqueId({false, secret, resolveHost(host, port, timeout)});
}

ServedMeeting serveUniqueId(const moeUniqueId_t& id, std::chrono::milliseconds timeout) {
  const IdContents contents = decodeUniqueId(id);
  const std::uint16_t port = contents.addresses.front().port;
  // Other ids may name a service address or a forwarded port, which this host does not have.
  const bool here = std::any_of(contents.addresses.begin(), contents.addresses.end(), isOfThisHost);
  Listener listener = here ? listenTcp(contents.addresses, port) : listenTcpEverywhere(port);
  return {std::move(listener.sockets), contents.secret, timeout, 0};
}

}  // namespace moe::bootstrap
