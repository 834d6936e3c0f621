// The configuration of a communicator: moeConfig_t first, then the environment, then the defaults. A rank's place in
// the job, which the launcher's variables give, is here too (launch_env.cc). config.cc is the only file of the library
// that reads the environment.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "backend/options.h"
#include "comm/config/parse.h"
#include "device/view/shape.h"
#include "moecomm.h"
#include "topology/rdma_settings.h"

namespace moe {

// The library's limits for any configuration. moeGetLimits reports them, config.cc enforces them.
struct Limits {
  static constexpr std::int32_t kRanks = 1024;
  static constexpr std::int32_t kTopk = kTopkMax;
  static constexpr std::int32_t kExperts = 65535;
  static constexpr std::int32_t kTokens = 1 << 20;    // HT, per rank and call
  static constexpr std::int32_t kLlTokens = 1 << 13;  // LL, per rank and call
  static constexpr std::int32_t kRowAlignment = moe::kRowAlignment;
  static constexpr std::int32_t kRowBytes = 1 << 20;
  static constexpr std::int32_t kSideBytes = 1 << 16;
  static constexpr std::int32_t kTimeoutMs = 24 * 60 * 60 * 1000;
  static constexpr std::int32_t kSms = 1024;
  static constexpr std::int64_t kArrivingRows = (1 << 24) - 1;  // times the parts of a row this fits 31 bits: planParts
  static constexpr std::int64_t kHeapBytes = std::int64_t{1} << 46;
};

// Names and units are those of moeConfig_t. Every value has been checked against its range. -1 and 0 keep their meaning
// where the value depends on the machine or the number of ranks.
struct Config {
  std::int32_t backend = moeBackendAuto;
  std::int32_t device = -1;
  std::int32_t modes = moeModeAuto;  // moeModeAuto: the communicator has both
  std::int32_t tokensMax = 0;
  std::int32_t llTokensMax = 0;
  std::int32_t rowBytesMax = 0;
  std::int32_t sideBytesMax = 0;
  std::int32_t topkMax = 0;
  std::int32_t expertsMax = 0;
  std::int32_t timeoutMs = 0;
  std::int32_t sms = 0;  // 0: the library's choice
  std::int32_t logLevel = moeLogWarn;
  std::int64_t stagingRows = 0;  // 0: nranks * tokensMax; -1: none
  std::int64_t heapBytes = 0;
  std::int32_t domainSize = 0;  // 0: chosen
  std::int32_t transport = 0;   // a moeTransport value between domains; 0: chosen
  std::int32_t llSets = 0;
  std::int32_t stagingAreas = 0;
  std::int32_t bulk = static_cast<std::int32_t>(Bulk::automatic);
  std::int32_t window = static_cast<std::int32_t>(WindowSharing::automatic);
  std::int32_t hostSimd = static_cast<std::int32_t>(HostSimd::automatic);
  std::int32_t hostThreads = 0;  // 0: chosen
  std::string interfaceName;     // empty: chosen
  std::string logFile;           // empty: stderr
  std::string dumpFolder;        // empty: none
  std::string watchFolder;       // empty: none
  std::string tuningFile;        // empty: none; rank 0's counts
  std::int32_t recorder = 1;
  topology::RdmaSettings rdma;
  moeLogFunction_t log = nullptr;
  void* logUser = nullptr;
  moeAllocate_t allocate = nullptr;
  moeFree_t free = nullptr;
  void* allocateUser = nullptr;
  std::vector<std::string> fromEnvironment;  // NAME=value of the variables that took effect

  bool ht() const { return modes != moeModeLl; }
  bool ll() const { return modes != moeModeHt; }
};

// Returns the text of an environment variable, or nullptr. Tests pass their own function.
using Lookup = std::function<const char*(const char* name)>;

// The environment of this process.
const Lookup& processEnvironment();

// The variables of this process whose names start with our prefix.
std::vector<std::string> namesInEnvironment();

// `user` may be nullptr. Throws moeInvalidArgument naming the field or variable, its value and what is allowed. An
// empty variable counts as unset.
Config resolveConfig(const moeConfig_t* user, const Lookup& lookup = processEnvironment());

// This rank according to its launcher's environment variables: moerun, torchrun, Open MPI, Slurm or a PMI.
// moeCommInitFromEnv calls it. docs/guide/launchers.md has the rules, variable by variable.
struct LaunchEnvironment {
  int nranks = 0;
  int rank = 0;
  int localRank = -1;  // index on this host; -1 if the launcher does not say
  std::string rootHost;
  std::uint16_t rootPort = 0;
  Secret secret{};
  std::string launcher;  // "moerun", "torchrun", "Open MPI", "Slurm", "PMI"
};

// Throws moeInvalidUsage if no launcher is recognised or a variable is missing, moeInvalidArgument if a value is
// malformed.
LaunchEnvironment launchFromEnvironment(const Lookup& lookup = processEnvironment());

}  // namespace moe
