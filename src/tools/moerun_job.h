// The values that all ranks of a moerun job share, the environment of each rank, and the program that starts one on
// another host.
#pragma once

#include <string>
#include <vector>

#include "tools/moerun_plan.h"

namespace moe::tools {

// The values that all ranks of a job share.
struct Job {
  int nranks = 0;
  std::string root;    // host:port where rank 0 listens
  std::string secret;  // 32 hexadecimal digits
  std::vector<std::string> command;
  std::vector<std::string> sshCommand;  // "ssh" and its options, without the host
  std::vector<std::string> exports;     // further variables that ssh ranks inherit
  std::string watchFolder = {};         // for ranks of this machine; empty: MOECOMM_WATCH_FOLDER stays as it is
  bool watchedElsewhere = false;        // ranks of other hosts offer their records in a folder of the same form
};

// The variables that moerun sets for a rank, as NAME=value.
std::vector<std::string> rankVariables(const Job& job, const Placement& placement);

// The caller's MOECOMM_ settings and the variables named by --export, as NAME=value, for ranks on other hosts. Names
// that a shell does not accept are left out; see `namesLeftOut`.
std::vector<std::string> exportedVariables(const Job& job);

// Names of the caller's MOECOMM_ settings that cannot be passed to another host.
std::vector<std::string> namesLeftOut();

// Throws moe::Error unless a shell accepts each name as that of a variable. A shell would execute anything else.
void checkExports(const std::vector<std::string>& names);

// ---- How a rank on another host is started. A shell program is ssh's argument, which every user of that host can
// read. The program reads everything secret from its standard input.

// Text that a POSIX shell reads back as one word.
std::string shellQuote(const std::string& text);

// The shell program that runs a rank on the far side of ssh. It reads `remoteInput` first, and ends the rank when its
// input closes. It contains no value of a variable.
std::string remoteScript(const Job& job);

// The rank's variables, a line each.
std::string remoteInput(const Job& job, const Placement& placement);

}  // namespace moe::tools
