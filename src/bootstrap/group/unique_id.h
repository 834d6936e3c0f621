// The 128 bytes that name a group: where its ranks meet, and the secret that they share. createUniqueId also starts the
// rendezvous (rendezvous_server.h), in a thread that owns all it needs and ends by itself.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "bootstrap/group/rendezvous_server.h"
#include "bootstrap/net/address.h"
#include "bootstrap/net/keyed_hash.h"
#include "moecomm.h"

namespace moe::bootstrap {

// Makes an id with a random secret and serves it on a free port of this host. The rendezvous ends when all ranks have
// joined; when the group has failed and all ranks know it, or 10 s later; or when `timeout` has passed and no rank
// waits. Throws moeInvalidArgument (no such interface), moeSystemError.
moeUniqueId_t createUniqueId(std::chrono::milliseconds timeout, const std::string& interfaceName);

// The id for a meeting point that all ranks already know. Resolves `host` within `timeout` and serves nothing. Throws
// moeInvalidArgument (port 0), and whatever resolveHost throws.
moeUniqueId_t uniqueIdFor(const std::string& host, std::uint16_t port, const std::array<std::uint8_t, 16>& secret,
                          std::chrono::milliseconds timeout);

// Serves an id of uniqueIdFor on exactly its port, as createUniqueId does. Only rank 0 calls it.
ServedMeeting serveUniqueId(const moeUniqueId_t& id, std::chrono::milliseconds timeout);

// The content of an id. `served`: its rendezvous ran before the id was known, so waiting is pointless if nobody
// listens. `replaces`: it is for a newcomer, a survivor serves it, and the secret is the group's key.
struct IdContents {
  bool served = false;
  Key secret{};
  std::vector<Address> addresses;
  bool replaces = false;
};
moeUniqueId_t encodeUniqueId(const IdContents& contents);
IdContents decodeUniqueId(const moeUniqueId_t& id);  // throws moeInvalidArgument if it is no id or is damaged

}  // namespace moe::bootstrap
