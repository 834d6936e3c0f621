// Starts the processes of a test (process_worker.cc) with the fake device loaded first, and collects what they leave
// behind.
#pragma once

#include <chrono>
#include <string>
#include <vector>

namespace moe::test {

struct WorldSettings {
  std::string scenario;
  int processes = 2;
  std::vector<std::string> words;  // NAME=VALUE, for the scenario
  std::string faults;
  std::string faultsOfLast;  // of the last process, if not the same
  int devices = 1;
  std::chrono::seconds patience{100};  // less than the test itself may take
};

struct WorldResult {
  std::vector<int> status;          // exit codes; of who was killed, 128 and the signal
  std::vector<std::string> output;  // of each process
  std::string violations;
  std::vector<std::string> leftBehind;  // files in the folder of the sockets
  double seconds = 0;

  bool allEndedWell() const;
  std::string describe() const;
  // The number behind "<name> " in the counts of all processes, summed up.
  long count(const std::string& name) const;
};

WorldResult runWorld(const WorldSettings& settings);

}  // namespace moe::test
