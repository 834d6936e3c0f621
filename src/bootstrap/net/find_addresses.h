// Finds the addresses of this host that other ranks get, and the addresses of a host's name. The unique id and every
// rank's listener use it.
#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "bootstrap/net/address.h"

namespace moe::bootstrap {

enum class InterfaceKind { physical, software, loopback };

// Judges by name and flags (IFF_LOOPBACK). Bridges and tunnels of containers and virtual machines count as virtual,
// because their addresses are often the same on every host.
InterfaceKind kindOfInterface(const std::string& name, unsigned flags);

// The addresses of interface `interfaceName`, or, if that is empty, of the best kind of interface that is up. They have
// port 0, IPv4 comes first, each is there once, and there are at most kAddressCountMax. Link-local IPv6 is left out.
// Throws moeInvalidArgument, with a list of the interfaces, if this one does not exist or has no address. Throws
// moeSystemError if no interface is usable.
std::vector<Address> localAddresses(const std::string& interfaceName);

// The addresses of a host name or numeric address, at most kAddressCountMax. Throws moeSystemError with the resolver's
// text, and moeTimeout if there is no answer after `timeout`.
std::vector<Address> resolveHost(const std::string& host, std::uint16_t port, std::chrono::milliseconds timeout);

}  // namespace moe::bootstrap
