// The configuration of communicators whose steps do not matter to a test.
#pragma once

#include "comm/config/config.h"

namespace moe::test {

inline Config smallConfig() {
  Config config = resolveConfig(nullptr);
  config.interfaceName = "lo";
  config.timeoutMs = 20000;
  config.tokensMax = config.llTokensMax = 4;
  config.rowBytesMax = 256;
  config.logLevel = moeLogNone;
  return config;
}

}  // namespace moe::test
