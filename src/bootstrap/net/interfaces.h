// Which of this host's addresses other ranks are told. Used by the unique id and by every rank's listener.
#pragma once

#include <string>
#include <vector>

#include "bootstrap/net/address.h"

namespace moe::bootstrap {

enum class InterfaceKind { Physical, Virtual, Loopback };

// By name and flags (IFF_LOOPBACK). Virtual: bridges and tunnels of containers and virtual machines, whose addresses
// are often the same on every host.
InterfaceKind kindOfInterface(const std::string& name, unsigned flags);

// Addresses of interface `interfaceName`, or if it is empty of the best kind of interface that is up, with port 0 and
// at most kAddressCountMax of them, IPv4 first. Link-local IPv6 is left out. Throws moeInvalidArgument, listing what
// there is, if the interface does not exist or has no address; moeSystemError if nothing is usable.
std::vector<Address> localAddresses(const std::string& interfaceName);

}  // namespace moe::bootstrap
