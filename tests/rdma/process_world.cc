#include "rdma/process_world.h"

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <stdexcept>
#include <thread>

namespace moe::test {
namespace {

class Folder {
 public:
  Folder() {
    std::string name = (std::filesystem::temp_directory_path() / "hca.XXXXXX").string();
    if (mkdtemp(name.data()) == nullptr) throw std::runtime_error("no folder for the processes");
    path_ = name;
    std::filesystem::create_directory(path_ / "sockets");
    std::filesystem::create_directory(path_ / "temporary");
  }
  ~Folder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;

  std::string at(const std::string& name) const { return (path_ / name).string(); }

 private:
  std::filesystem::path path_;
};

std::string contentsOf(const std::string& path) {
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

std::vector<std::string> environmentOf(const WorldSettings& settings, const Folder& folder, int rank) {
  const bool isLast = rank == settings.processes - 1;
  const std::string faults = isLast && !settings.faultsOfLast.empty() ? settings.faultsOfLast : settings.faults;
  std::vector<std::string> variables = {
      std::string("LD_PRELOAD=") + MOECOMM_FAKEMLX5,
      "FAKE_MLX5_DIR=" + folder.at("sockets"),
      "FAKE_MLX5_REPORT=" + folder.at("report"),
      "FAKE_MLX5_FAULTS=" + faults,
      "FAKE_MLX5_DEVICES=" + std::to_string(settings.devices),
      "FAKE_MLX5_HOST=" + std::to_string(rank),
      // A killed process leaves a fake sysfs behind.
      "TMPDIR=" + folder.at("temporary"),
      // The adapter reads and writes the queues as hardware does, so the thread sanitizer must not check its memcpy.
      "TSAN_OPTIONS=ignore_noninstrumented_modules=1",
  };
  // The inherited variables come after ours, because the first of a name counts.
  for (char** variable = environ; *variable != nullptr; ++variable) variables.emplace_back(*variable);
  return variables;
}

std::vector<char*> pointersTo(std::vector<std::string>& texts) {
  std::vector<char*> pointers;
  for (std::string& text : texts) pointers.push_back(text.data());
  pointers.push_back(nullptr);
  return pointers;
}

pid_t start(const WorldSettings& settings, const Folder& folder, int rank) {
  std::vector<std::string> words = {MOECOMM_HCA_WORKER, folder.at("board"), settings.scenario, std::to_string(rank),
                                    std::to_string(settings.processes)};
  words.insert(words.end(), settings.words.begin(), settings.words.end());
  std::vector<std::string> variables = environmentOf(settings, folder, rank);
  const std::string output = folder.at("output" + std::to_string(rank));
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, 1, output.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
  posix_spawn_file_actions_adddup2(&actions, 1, 2);
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP);  // a process group of its own
  pid_t process = 0;
  const int error = posix_spawn(&process, MOECOMM_HCA_WORKER, &actions, &attributes, pointersTo(words).data(),
                                pointersTo(variables).data());
  posix_spawnattr_destroy(&attributes);
  posix_spawn_file_actions_destroy(&actions);
  if (error != 0) throw std::runtime_error(std::string("posix_spawn: ") + std::strerror(error));
  return process;
}

// Kills a process that misses the deadline, with its children.
int waitFor(pid_t process, std::chrono::steady_clock::time_point deadline) {
  int status = 0;
  while (waitpid(process, &status, WNOHANG) == 0) {
    if (std::chrono::steady_clock::now() > deadline) kill(-process, SIGKILL);
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

}  // namespace

bool WorldResult::allEndedWell() const {
  return std::all_of(status.begin(), status.end(), [](int each) { return each == 0; });
}

std::string WorldResult::describe() const {
  std::string text;
  for (std::size_t rank = 0; rank < status.size(); ++rank) {
    text += "process " + std::to_string(rank) + " ended with " + std::to_string(status[rank]) + ": " + output[rank];
  }
  return text + violations.substr(0, 2000);
}

long WorldResult::count(const std::string& name) const {
  long sum = 0;
  for (const std::string& text : output) {
    const std::size_t counts = text.find("counts:"), at = text.find(" " + name + " ", counts);
    if (counts != std::string::npos && at != std::string::npos) sum += std::atol(text.c_str() + at + name.size() + 2);
  }
  return sum;
}

WorldResult runWorld(const WorldSettings& settings) {
  const Folder folder;
  const auto begin = std::chrono::steady_clock::now();
  std::vector<pid_t> processes;
  for (int rank = 0; rank < settings.processes; ++rank) processes.push_back(start(settings, folder, rank));
  WorldResult result;
  for (const pid_t process : processes) result.status.push_back(waitFor(process, begin + settings.patience));
  result.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  for (int rank = 0; rank < settings.processes; ++rank) {
    result.output.push_back(contentsOf(folder.at("output" + std::to_string(rank))));
  }
  result.violations = contentsOf(folder.at("report"));
  for (const auto& entry : std::filesystem::directory_iterator(folder.at("sockets"))) {
    result.leftBehind.push_back(entry.path().filename().string());
  }
  return result;
}

}  // namespace moe::test
