// Where, when and with what a report was made.
#pragma once

#include <string>

namespace moe::perf {

struct Provenance {
  std::string version;  // of moecomm
  std::string commit;   // empty if it was not built from a checkout
  std::string host;
  std::string date;    // of the start, UTC: 2026-11-23T13:00:00Z
  std::string cpu;     // the model's name
  std::string driver;  // of NVIDIA GPUs; empty without
};

Provenance findProvenance();

}  // namespace moe::perf
