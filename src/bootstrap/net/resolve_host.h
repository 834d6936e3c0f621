// Turns the name of a host into its addresses.
#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "bootstrap/net/address.h"

namespace moe::bootstrap {

// The addresses of a host name or numeric address, at most kAddressCountMax. Throws moeSystemError with the resolver's
// text, and moeTimeout if there is no answer after `timeout`.
std::vector<Address> resolveHost(const std::string& host, std::uint16_t port, std::chrono::milliseconds timeout);

}  // namespace moe::bootstrap
