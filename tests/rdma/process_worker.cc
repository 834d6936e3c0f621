// One process of a test: process_worker BOARD SCENARIO RANK PROCESSES [NAME=VALUE ...]. In a scenario "mistake-NAME" it
// runs alone. Exits with 0 if all was well and nothing of the adapter is left behind.
#include <dlfcn.h>

#include <cstdio>
#include <cstdlib>
#include <map>

#include "rdma/process_scenarios.h"
#include "support/base/held.h"

namespace moe::test {
namespace {

PeerSettings readSettings(int rank, int processes, const std::map<std::string, unsigned>& words) {
  PeerSettings settings;
  settings.rank = rank;
  settings.processes = processes;
  for (const auto& [name, value] : words) {
    if (name == "queues") settings.link.byQueues = value != 0;
    if (name == "sender-queues") settings.link.byQueues = value != 0 && rank == 0;
    if (name == "timeout") settings.link.timeout = value;
    if (name == "retries") settings.link.retries = value;
    if (name == "not-ready-retries") settings.link.notReadyRetries = value;
    if (name == "relaxed") settings.relaxed = value != 0;
    if (name == "gpu") settings.gpu = value != 0;
    if (name == "slots") settings.link.slots = value;
    if (name == "devices") settings.device = rank % static_cast<int>(value);
  }
  return settings;
}

template <class Function>
Function* findInAdapter(const char* name) {
  auto* function = reinterpret_cast<Function*>(dlsym(RTLD_DEFAULT, name));
  if (function == nullptr) throw std::runtime_error("libfakemlx5.so is not loaded");
  return function;
}

// Prints the adapter's counts of the mishaps that were asked for and of messages that were sent again.
void printCounts() {
  auto* count = findInAdapter<unsigned long(const char*)>("fake_mlx5_count");
  std::string line;
  for (const char* name : {"drop", "duplicate", "delay", "reorder", "rnr", "nak", "slow_cqe", "error",
                           "ignore_doorbell", "stuck", "resent"}) {
    if (count(name) != 0) line += std::string(" ") + name + " " + std::to_string(count(name));
  }
  if (auto* copies = reinterpret_cast<unsigned long (*)()>(dlsym(RTLD_DEFAULT, "fake_cuda_copies"));
      copies != nullptr) {
    line += " gpu-copies " + std::to_string(copies());
  }
  std::printf("counts:%s\n", line.c_str());
}

int runWorker(int argumentCount, char** arguments) {
  if (argumentCount < 5) throw std::runtime_error("process_worker BOARD SCENARIO RANK PROCESSES [NAME=VALUE ...]");
  const std::string scenario = arguments[2];
  std::map<std::string, unsigned> words;
  for (int i = 5; i < argumentCount; ++i) {
    const std::string word = arguments[i];
    const std::size_t sign = word.find('=');
    if (sign == std::string::npos) throw std::runtime_error("NAME=VALUE");
    words[word.substr(0, sign)] = static_cast<unsigned>(std::strtoul(word.c_str() + sign + 1, nullptr, 10));
  }
  if (scenario.starts_with("mistake-")) {
    if (!makeMistake(scenario.substr(8))) throw std::runtime_error("there is no such mistake");
    return 0;
  }
  Scenario run = findTransfer(scenario);
  if (run == nullptr) run = findFailure(scenario);
  if (run == nullptr) throw std::runtime_error("there is no scenario " + scenario);
  const BoardFile board(arguments[1]);
  const PeerSettings settings = readSettings(std::atoi(arguments[3]), std::atoi(arguments[4]), words);
  run(*std::make_unique<Peer>(board, settings));
  printCounts();
  return findInAdapter<unsigned long()>("fake_mlx5_violations")() == 0 ? 0 : 1;
}

}  // namespace
}  // namespace moe::test

int main(int argumentCount, char** arguments) {
  try {
    ibv_free_device_list(ibv_get_device_list(nullptr));  // loads the providers
    moe::test::Held::settle();
    const moe::test::Held before;
    const int status = moe::test::runWorker(argumentCount, arguments);
    if (moe::test::holdsNoMoreThan(before)) return status;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
  }
  return 1;
}
