// Strict readers of text from the environment. They take the whole text or throw moe::Error (moeInvalidArgument) naming
// the variable, its value and what is allowed. config.cc and launch_env.cc use them.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/error.h"

namespace moe {

// `<name> is "<text>"; <allowed>`.
Error badVariable(std::string_view name, std::string_view text, std::string_view allowed);

// A decimal integer without sign '+', blanks or suffix.
std::int64_t parseInteger(std::string_view name, std::string_view text, std::int64_t min, std::int64_t max);

struct HostPort {
  std::string host;
  std::uint16_t port = 0;
};

// "host:port", "192.0.2.1:port" or "[2001:db8::1]:port" (the brackets are not part of the host). Port 0 is refused.
HostPort parseHostPort(std::string_view name, std::string_view text);

using Secret = std::array<std::uint8_t, 16>;

// 32 hexadecimal digits. The message does not repeat the value, because it is a secret.
Secret parseSecret(std::string_view name, std::string_view text);

}  // namespace moe
