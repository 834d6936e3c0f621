// Starts one rank: by fork on this machine, or through ssh on another. Decides the rank's environment. Waiting for the
// rank is the supervisor's part.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "base/fd.h"
#include "tools/moerun_plan.h"

namespace moe::tools {

// What all ranks of a job share.
struct Job {
  int nranks = 0;
  std::string root;    // host:port where rank 0 listens
  std::string secret;  // 32 hexadecimal digits
  std::vector<std::string> command;
  std::vector<std::string> sshCommand;  // "ssh" and its options, without the host
  std::vector<std::string> exports;     // further variables that ssh ranks inherit
};

struct RankProcess {
  Placement placement;
  pid_t pid = -1;  // also the process group
  Fd out;
  Fd err;
  Fd stop;  // ssh ranks: closing it ends the remote process group
};

// Throws moe::Error when the process cannot be made. A command that cannot be executed shows as exit status 127 (not
// found) or 126, with a sentence on the rank's standard error.
RankProcess startRank(const Job& job, const Placement& placement);

// Text that a POSIX shell reads back as one word.
std::string shellQuote(const std::string& text);

// The shell program that runs a rank on the far side of ssh. It reads the secret from its standard input, and ends the
// rank when that input closes. The secret is not part of it.
std::string remoteScript(const Job& job, const Placement& placement);

}  // namespace moe::tools
