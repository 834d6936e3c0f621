// Reads what the launcher's environment variables say about this rank: moerun, torchrun, Open MPI, Slurm or a PMI.
// moeCommInitFromEnv calls it. docs/guide/launchers.md has the rules, variable by variable.
#pragma once

#include <cstdint>
#include <string>

#include "comm/config/config.h"
#include "comm/config/parse.h"

namespace moe {

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
