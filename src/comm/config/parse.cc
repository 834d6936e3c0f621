#include "comm/config/parse.h"

#include <fmt/format.h>

#include <charconv>

namespace moe {
namespace {

// The value of a hexadecimal digit, or -1.
int digitValue(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

}  // namespace

Error badVariable(std::string_view name, std::string_view text, std::string_view allowed) {
  return Error(moeInvalidArgument, fmt::format("{} is \"{}\"; {}", name, text, allowed));
}

std::int64_t parseInteger(std::string_view name, std::string_view text, std::int64_t min, std::int64_t max) {
  std::int64_t value = 0;
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  if (error != std::errc() || stop != end || value < min || value > max) {
    throw badVariable(name, text, fmt::format("it must be a whole number from {} to {}", min, max));
  }
  return value;
}

HostPort parseHostPort(std::string_view name, std::string_view text) {
  const auto refuse = [&] { return badVariable(name, text, "expected host:port or [IPv6 address]:port"); };
  const std::size_t colon = text.rfind(':');
  if (colon == std::string_view::npos || colon == 0) throw refuse();
  std::string_view host = text.substr(0, colon);
  if (host.front() == '[') {
    if (host.size() < 3 || host.back() != ']') throw refuse();
    host = host.substr(1, host.size() - 2);
  } else if (host.find(':') != std::string_view::npos) {
    throw refuse();  // it is ambiguous which colon ends the address
  }
  if (host.find_first_of("[] \t") != std::string_view::npos) throw refuse();
  const std::string portName = fmt::format("the port of {}", name);
  const auto port = parseInteger(portName, text.substr(colon + 1), 1, 65535);
  return {std::string(host), static_cast<std::uint16_t>(port)};
}

Secret parseSecret(std::string_view name, std::string_view text) {
  Secret secret{};
  bool valid = text.size() == 2 * secret.size();
  for (std::size_t i = 0; valid && i < secret.size(); ++i) {
    const int high = digitValue(text[2 * i]), low = digitValue(text[2 * i + 1]);
    valid = high >= 0 && low >= 0;
    if (valid) secret[i] = static_cast<std::uint8_t>(high * 16 + low);
  }
  if (!valid) throw Error(moeInvalidArgument, fmt::format("{} is not 32 hexadecimal digits", name));
  return secret;
}

}  // namespace moe
