#include "tools/watch_folder.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <filesystem>
#include <system_error>

#include "base/fd.h"
#include "base/unix_socket.h"

namespace moe::tools {
namespace {

// A socket that is younger may not listen yet.
constexpr std::chrono::minutes kAge{1};

bool isOwnFolder(const std::string& folder) {
  struct stat found {};
  return ::lstat(folder.c_str(), &found) == 0 && S_ISDIR(found.st_mode) && found.st_uid == ::geteuid() &&
         (found.st_mode & 077) == 0;
}

bool canMakeFiles(const std::string& folder) {
  std::string name = folder + "/probe-XXXXXX";
  const Fd file(::mkostemp(name.data(), O_CLOEXEC));
  if (!file) return false;
  ::unlink(name.c_str());
  return true;
}

// True if the socket's owner has ended.
bool isLeft(const std::string& path) {
  const std::optional<UnixName> name = UnixName::ofFile(path);
  if (!name) return false;
  const Fd fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  return fd && ::connect(fd.get(), name->get(), name->bytes()) != 0 && errno == ECONNREFUSED;
}

bool isOld(const std::filesystem::path& path) {
  struct stat found {};
  if (::lstat(path.c_str(), &found) != 0) return false;
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return now - std::chrono::seconds(found.st_mtime) > kAge;
}

void removeLeftSockets(const std::string& folder) {
  std::error_code problem;
  for (const auto& entry : std::filesystem::directory_iterator(folder, problem)) {
    const std::string path = entry.path().string();
    if (entry.path().extension() != ".sock" || !isOld(entry.path()) || !isLeft(path)) continue;
    ::unlink(path.c_str());
    ::unlink((path + ".key").c_str());
  }
}

}  // namespace

std::string defaultWatchFolder() {
  return fmt::format("/tmp/moecomm-{}", ::geteuid());
}

bool prepareWatchFolder(const std::string& folder) {
  if (::mkdir(folder.c_str(), 0700) != 0 && errno != EEXIST) return false;
  if (!isOwnFolder(folder) || !canMakeFiles(folder)) return false;
  removeLeftSockets(folder);
  return true;
}

}  // namespace moe::tools
