#include "comm/config/config.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cstdlib>
#include <string_view>
#include <type_traits>

#include "base/sized_struct.h"
#include "comm/config/config_table.h"
#include "comm/config/parse.h"

namespace moe {
namespace {

bool isAllowed(const Allowed& allowed, std::int64_t value) {
  if (const auto* range = std::get_if<IntegerRange>(&allowed)) {
    return value >= range->min && value <= range->max && value % range->multiple == 0;
  }
  for (const Choice& choice : std::get<std::span<const Choice>>(allowed)) {
    if (choice.value == value) return true;
  }
  return false;
}

// The rest of "it must be ...", for numbers.
std::string requiredRange(const IntegerRange& range) {
  if (range.multiple == 1) return fmt::format("{} to {}", range.min, range.max);
  return fmt::format("a multiple of {} from {} to {}", range.multiple, range.min, range.max);
}

std::string requiredOfText(const Allowed& allowed) {
  if (const auto* range = std::get_if<IntegerRange>(&allowed)) return requiredRange(*range);
  return "one of " + describeAllowed(allowed);
}

// A field takes the numbers of a variable's words.
std::string requiredOfField(const Allowed& allowed) {
  if (const auto* range = std::get_if<IntegerRange>(&allowed)) return requiredRange(*range);
  std::string values;
  for (const Choice& choice : std::get<std::span<const Choice>>(allowed)) {
    if (!values.empty()) values += ", ";
    values += fmt::format("{} ({})", choice.value, choice.word);
  }
  return "one of " + values;
}

std::int64_t parseNumber(const Setting& setting, std::string_view text) {
  const std::string required = "it must be " + requiredOfText(setting.allowed);
  if (const auto* range = std::get_if<IntegerRange>(&setting.allowed)) {
    const std::int64_t value = parseInteger(setting.variable, text, range->min, range->max);
    if (!isAllowed(setting.allowed, value)) throw badVariable(setting.variable, text, required);
    return value;
  }
  for (const Choice& choice : std::get<std::span<const Choice>>(setting.allowed)) {
    if (text == choice.word) return choice.value;
  }
  throw badVariable(setting.variable, text, required);
}

// The field's value if the program has set it: a text, or a checked number.
const char* textOfField(const Setting& setting, const moeConfig_t& user) {
  const auto* member = std::get_if<const char * moeConfig_t::*>(&setting.source);
  return member != nullptr ? user.**member : nullptr;
}

bool numberOfField(const Setting& setting, const moeConfig_t& user, std::int64_t* value) {
  if (const auto* small = std::get_if<std::int32_t moeConfig_t::*>(&setting.source)) {
    *value = user.**small;
  } else if (const auto* large = std::get_if<std::int64_t moeConfig_t::*>(&setting.source)) {
    *value = user.**large;
  } else {
    return false;
  }
  if (*value == setting.unset) return false;
  if (!isAllowed(setting.allowed, *value)) {
    throw Error(moeInvalidArgument,
                fmt::format("config.{} is {}; it must be {}", setting.field, *value, requiredOfField(setting.allowed)));
  }
  return true;
}

// Where the value goes, or nullptr if the target has another type.
template <class Value>
Value* targetIn(const Setting& setting, Config* config) {
  if (const auto* member = std::get_if<Value Config::*>(&setting.target)) return &(config->**member);
  if constexpr (!std::is_same_v<Value, std::int64_t>) {
    if (const auto* member = std::get_if<Value topology::RdmaSettings::*>(&setting.target)) {
      return &(config->rdma.**member);
    }
  }
  return nullptr;
}

void resolveSetting(const Setting& setting, const moeConfig_t& user, const Lookup& lookup, Config* config) {
  if (std::holds_alternative<std::monostate>(setting.target)) return;
  const char* text = lookup(setting.variable);
  const bool given = text != nullptr && *text != '\0';
  if (!given) text = setting.defaultText;
  const auto take = [&] {
    if (given) config->fromEnvironment.push_back(fmt::format("{}={}", setting.variable, text));
    return text;
  };
  if (auto* target = targetIn<std::string>(setting, config)) {
    const char* field = textOfField(setting, user);
    *target = field != nullptr ? field : take();
    return;
  }
  std::int64_t value = 0;
  if (!numberOfField(setting, user, &value)) value = parseNumber(setting, take());
  if (auto* target = targetIn<std::int32_t>(setting, config)) {
    *target = static_cast<std::int32_t>(value);
  } else {
    *targetIn<std::int64_t>(setting, config) = value;
  }
}

}  // namespace

const Lookup& processEnvironment() {
  static const Lookup lookup = [](const char* name) -> const char* { return std::getenv(name); };
  return lookup;
}

std::vector<std::string> namesInEnvironment() {
  std::vector<std::string> names;
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
    const std::string_view variable = *entry;
    if (variable.starts_with(kPrefix)) names.emplace_back(variable.substr(0, variable.find('=')));
  }
  return names;
}

Config resolveConfig(const moeConfig_t* user, const Lookup& lookup) {
  static constexpr moeConfig_t kDefaults = MOE_CONFIG_INITIALIZER;
  const moeConfig_t fields = user != nullptr ? readStruct(user, "config", kDefaults) : kDefaults;
  Config config;
  for (const Setting& setting : settings()) resolveSetting(setting, fields, lookup, &config);
  if ((fields.allocate == nullptr) != (fields.free == nullptr)) {
    throw Error(moeInvalidArgument, "config.allocate and config.free must be given together");
  }
  config.log = fields.log;
  config.logUser = fields.logUser;
  config.allocate = fields.allocate;
  config.free = fields.free;
  config.allocateUser = fields.allocateUser;
  return config;
}

}  // namespace moe
