// Every environment variable of the library, one row each. config.cc parses them by this table;
// docs/reference/tuning.md shows it.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "comm/config/config.h"

namespace moe {

struct Choice {
  const char* word;
  std::int32_t value;
};

struct IntegerRange {
  std::int64_t min;
  std::int64_t max;
  std::int64_t multiple = 1;
};

struct FreeText {
  const char* form;  // the accepted text, for the documentation
};

using Allowed = std::variant<IntegerRange, std::span<const Choice>, FreeText>;

struct Setting {
  const char* variable;
  const char* field;         // field of moeConfig_t; nullptr: only the variable exists
  const char* defaultText;   // a number, a word of the choices, or empty for "not set"
  const char* defaultShown;  // in the documentation, if defaultText is not clear there; otherwise nullptr
  Allowed allowed;
  const char* meaning;

  // Where the value goes. None for the launcher's variables, which launch_env.cc reads.
  using Target = std::variant<std::monostate, std::int32_t Config::*, std::int64_t Config::*, std::string Config::*,
                              std::int32_t topology::RdmaSettings::*, std::string topology::RdmaSettings::*>;
  Target target;
  // Where the program may set it.
  using Source = std::variant<std::monostate, std::int32_t moeConfig_t::*, std::int64_t moeConfig_t::*,
                              const char * moeConfig_t::*>;
  Source source;
  std::int64_t unset = 0;  // the field's value that stands for "not set"
};

std::span<const Setting> settings();

// The prefix of our variables.
inline constexpr std::string_view kPrefix = "MOECOMM_";

// The names of all variables of the library, its tools, its Python package and its tests.
std::vector<std::string> knownVariables();

// "1 to 32", "a multiple of 16, 16 to 1048576", "auto, host, cuda", ...
std::string describeAllowed(const Allowed& allowed);

// The table of docs/reference/tuning.md.
std::string settingsAsMarkdown();

}  // namespace moe
