// moe_info --explain: what the library would choose for a shape, and why. It asks the library's own arithmetic and
// allocates nothing.
#pragma once

#include <cstdint>
#include <string>

#include "comm/config/mode_limits.h"
#include "moecomm.h"

namespace moe::tools {

struct ExplainedShape {
  std::int32_t mode = moeModeAuto;
  std::int32_t layout = moeLayoutFlat;
  std::int32_t backend = moeBackendAuto;
  int ranks = 8;
  int domainSize = 0;  // 0: all ranks are in one domain
  int tokens = 128;
  int hidden = 7168;  // of bf16
  int topk = 8;
  int experts = 256;
  int sms = 0;  // 0: the library's choice
};

// The parts of the machine that the choices depend on.
struct ExplainingMachine {
  int processors = 0;        // of this host
  int multiprocessors = 0;   // of its first GPU; 0: there is none
  double linkGBs = 0;        // of that GPU's links; 0: not known
  std::string betweenHosts;  // transportBetweenHosts
  std::string tuningFile{};  // MOECOMM_TUNING; empty: none
  ModeLimits tunedLimits = untuned();
};

// The sentence for a shape that cannot be; empty if it can.
std::string impossible(const ExplainedShape& shape);

// Lines "mode: ...", "SMs: ...", "memory: ...", "transport: ...". Throws std::runtime_error if the library refuses the
// shape.
std::string explain(const ExplainedShape& shape, const ExplainingMachine& machine);

}  // namespace moe::tools
