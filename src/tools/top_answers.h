// What moe_top has learnt of ranks, and its form on the way between hosts: `moe_top --answers` prints it, and
// `moe_top --hosts` reads it. It has the ranks' dumps as they are, because waits and the slowest rank follow from the
// steps of all ranks. These are pure functions.
#pragma once

#include <string>
#include <vector>

namespace moe::tools {

struct Answer {
  std::string socket;   // its path; of another host "HOST:PATH"
  std::string text;     // the rank's dump; empty if there is none
  std::string problem;  // why there is no answer
};

// One line.
std::string answersText(const std::vector<Answer>& answers);

// Finds that line in the output of a host. Throws std::runtime_error without the host's name.
std::vector<Answer> parseAnswers(const std::string& output);

}  // namespace moe::tools
