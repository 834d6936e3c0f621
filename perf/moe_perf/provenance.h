// Where and when a report was made, and with what software.
#pragma once

#include <string>

namespace moe::perf {

struct Provenance {
  std::string version;  // of moecomm
  std::string commit;   // empty if the build did not come from a checkout
  std::string host;
  std::string date;    // start of the run, UTC: 2026-11-23T13:00:00Z
  std::string cpu;     // model name
  std::string driver;  // driver of NVIDIA GPUs; empty without one
};

Provenance findProvenance();

}  // namespace moe::perf
