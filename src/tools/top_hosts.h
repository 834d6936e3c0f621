// How moe_top asks other hosts: it starts moe_top there over ssh, as moerun starts ranks.
#pragma once

#include <string>
#include <vector>

#include "tools/top_answers.h"

namespace moe::tools {

struct HostsPlan {
  std::vector<std::string> hosts;
  std::vector<std::string> ssh;  // a command, which the host and one command for its shell follow
  std::string program;           // moe_top there
  std::string folder;            // of the sockets there; empty: that of jobs under moerun
  int timeoutSeconds = 10;       // for each host
};

// Asks all hosts at once. A host that gives no answer has a problem instead, and hides no other.
std::vector<Answer> askHosts(const HostsPlan& plan);

}  // namespace moe::tools
