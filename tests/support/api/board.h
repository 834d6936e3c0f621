// How processes of one test tell each other words, ids and progress.
#pragma once

#include <fmt/format.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>

#include "moecomm.h"

namespace moe::test {

// Words that the processes of the group tell each other, as files. They appear as a whole.
class Board {
 public:
  explicit Board(std::string directory) : directory_(std::move(directory)) {
    std::filesystem::create_directories(directory_);
  }
  void put(const std::string& name, const void* bytes = nullptr, std::size_t count = 0) const {
    const std::string path = directory_ + "/" + name, unfinished = fmt::format("{}.{}", path, ::getpid());
    std::ofstream(unfinished).write(static_cast<const char*>(bytes), static_cast<std::streamsize>(count));
    std::filesystem::rename(unfinished, path);
  }
  void put(const std::string& name, int number) const {
    const std::string text = std::to_string(number);
    put(name, text.data(), text.size());
  }
  int number(const std::string& name) const {
    int found = 0;
    std::ifstream(directory_ + "/" + name) >> found;
    return found;
  }
  bool has(const std::string& name) const { return std::filesystem::exists(directory_ + "/" + name); }
  moeUniqueId_t awaitId(const std::string& name) const {
    moeUniqueId_t id{};
    for (const auto end = std::chrono::steady_clock::now() + kIdMax;
         !has(name) && std::chrono::steady_clock::now() < end;)
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    std::ifstream(directory_ + "/" + name).read(reinterpret_cast<char*>(&id), sizeof id);
    return id;
  }

 private:
  static constexpr std::chrono::seconds kIdMax{60};

  std::string directory_;
};

}  // namespace moe::test
