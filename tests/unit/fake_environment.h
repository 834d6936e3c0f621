// An environment made from pairs, for the tests of what config.cc and launch_env.cc read. It hides the real one.
#pragma once

#include <map>
#include <string>

#include "comm/config/config.h"

namespace moe::test {

using Environment = std::map<std::string, std::string>;

inline Lookup lookupIn(const Environment& environment) {
  return [&environment](const char* name) -> const char* {
    const auto found = environment.find(name);
    return found == environment.end() ? nullptr : found->second.c_str();
  };
}

}  // namespace moe::test
