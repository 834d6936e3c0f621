// Starts the processes of a test (process_worker.cc) with the fake device preloaded, and collects what they leave
// behind.
#pragma once

#include <chrono>
#include <string>
#include <vector>

namespace moe::test {

struct WorldSettings {
  std::string scenario;
  int processes = 2;
  std::vector<std::string> words;  // NAME=VALUE, passed to the scenario
  std::string faults;
  std::string faultsOfLast;  // for the last process, if different
  int devices = 1;
  std::chrono::seconds patience{100};  // less than the limit of the test
};

struct WorldResult {
  std::vector<int> status;          // exit codes; 128 and the signal for a killed process
  std::vector<std::string> output;  // one for each process
  std::string violations;
  std::vector<std::string> leftBehind;  // files in the folder of the sockets
  double seconds = 0;

  bool allEndedWell() const;
  std::string describe() const;
  // The sum over all processes of the number behind "<name> " in their counts.
  long count(const std::string& name) const;
};

WorldResult runWorld(const WorldSettings& settings);

}  // namespace moe::test
