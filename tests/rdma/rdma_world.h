// Ranks of one process over the adapters in software of tests/fake_mlx5. libfakemlx5.so, in front of libibverbs, plays
// the adapters. The ranks look at its sysfs.
#pragma once

#include <gtest/gtest.h>
#include <stdlib.h>

#include <fstream>
#include <sstream>

#include "transport/transport_world.h"

namespace moe::test {

// The folder where the adapters meet and report mistakes of posters. It is made before the first adapter is opened, and
// removed at the end of the program.
class RdmaFolder {
 public:
  static const RdmaFolder& ofProcess() {
    static const RdmaFolder folder;
    return folder;
  }
  ~RdmaFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  RdmaFolder(const RdmaFolder&) = delete;
  RdmaFolder& operator=(const RdmaFolder&) = delete;

  std::string violations() const {
    std::ostringstream text;
    text << std::ifstream(path_ / "report").rdbuf();
    return text.str();
  }

 private:
  RdmaFolder() {
    std::string name = (std::filesystem::temp_directory_path() / "moecomm_rdma_XXXXXX").string();
    path_ = ::mkdtemp(name.data());
    std::filesystem::create_directory(path_ / "sockets");
    ::setenv("FAKE_MLX5_DIR", (path_ / "sockets").c_str(), 1);
    ::setenv("FAKE_MLX5_REPORT", (path_ / "report").c_str(), 1);
  }

  std::filesystem::path path_;
};

inline std::filesystem::path fakeSys() {
  const char* path = ::getenv("SYSFS_PATH");
  return path == nullptr ? "/nowhere" : path;
}

// Options of members whose puts this kind of transport carries.
inline MemberOptions overRdma(LogLines* lines, int kind = moeTransportVerbs) {
  RdmaFolder::ofProcess();
  MemberOptions options;
  options.rdma.sys = fakeSys();
  options.lines = lines;
  options.make = [kind](RemoteSetup setup, const TcpOptions&) { return makeRemoteTransport(std::move(setup), kind); };
  return options;
}

}  // namespace moe::test
