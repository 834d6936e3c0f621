#include "bootstrap/host_identity.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <sstream>
#include <string_view>

namespace moe::bootstrap {
namespace {

std::uint64_t inodeOf(const char* path) {
  struct stat info {};
  return ::stat(path, &info) == 0 ? static_cast<std::uint64_t>(info.st_ino) : 0;
}

template <std::size_t N>
void store(std::array<char, N>& out, std::string_view text) {
  std::copy_n(text.begin(), std::min(text.size(), N - 1), out.begin());
}

}  // namespace

// Field 22 of its stat; the fields after the process name, which may contain anything, start behind the last ')'.
std::uint64_t startOfProcess(const std::string& process) {
  std::ifstream file("/proc/" + process + "/stat");
  std::string line;
  std::getline(file, line);
  const std::size_t nameEnd = line.rfind(')');
  if (nameEnd == std::string::npos) return 0;
  std::istringstream fields(line.substr(nameEnd + 1));
  std::string skipped;
  for (int field = 3; field < 22; ++field) fields >> skipped;
  std::uint64_t start = 0;
  fields >> start;
  return start;
}

HostIdentity HostIdentity::current() {
  HostIdentity self{};
  (void)::gethostname(self.hostName.data(), self.hostName.size() - 1);
  std::ifstream boot("/proc/sys/kernel/random/boot_id");
  std::string bootId;
  std::getline(boot, bootId);
  store(self.bootId, bootId);
  self.netNamespace = inodeOf("/proc/self/ns/net");
  self.ipcNamespace = inodeOf("/proc/self/ns/ipc");
  self.pidNamespace = inodeOf("/proc/self/ns/pid");
  self.processStart = startOfProcess("self");
  self.processId = ::getpid();
  return self;
}

// Without boot ids the host names decide. Containers of one kernel share the boot id whatever their names are.
bool HostIdentity::sameKernel(const HostIdentity& other) const {
  if (bootId != other.bootId) return false;
  return bootId[0] != 0 || hostName == other.hostName;
}

bool HostIdentity::sameHost(const HostIdentity& other) const {
  return sameKernel(other) && netNamespace == other.netNamespace;
}

bool HostIdentity::sameProcess(const HostIdentity& other) const {
  return sameKernel(other) && pidNamespace == other.pidNamespace && processId == other.processId &&
         processStart == other.processStart;
}

}  // namespace moe::bootstrap
