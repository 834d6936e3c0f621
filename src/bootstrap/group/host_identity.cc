#include "bootstrap/group/host_identity.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <fstream>
#include <sstream>
#include <string_view>

#include "base/error.h"

namespace moe::bootstrap {
namespace {

std::uint64_t inodeOf(const char* path) {
  struct stat info {};
  return ::stat(path, &info) == 0 ? static_cast<std::uint64_t>(info.st_ino) : 0;
}

// The first line of a file; empty if there is none. A rank without its identity would fail later, so a shortage
// of descriptors or memory ends the call instead.
std::string firstLineOf(const std::string& path) {
  std::ifstream file(path);
  if (!file.is_open() && isShortage(errno)) {
    throw Error(moeSystemError, fmt::format("cannot read {}: {}", path, errorText(errno)));
  }
  std::string line;
  std::getline(file, line);
  return line;
}

template <std::size_t N>
void store(std::array<char, N>& out, std::string_view text) {
  std::copy_n(text.begin(), std::min(text.size(), N - 1), out.begin());
}

}  // namespace

// Reads field 22 of the process's stat. The process name may contain anything, so fields are counted from the last ')'.
std::uint64_t startOfProcess(const std::string& process) {
  const std::string line = firstLineOf("/proc/" + process + "/stat");
  const std::size_t nameEnd = line.rfind(')');
  if (nameEnd == std::string::npos) return 0;
  std::istringstream fields(line.substr(nameEnd + 1));
  std::string skipped;
  for (int field = 3; field < 22; ++field) fields >> skipped;
  std::uint64_t start = 0;
  fields >> start;
  return start;
}

namespace {

// The random number of this process. It lies in a page that is empty in a forked child, so that the child makes its own
// number. The page lives as long as the process.
class ProcessNumber {
 public:
  ProcessNumber() : page_(::mmap(nullptr, kPageBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)) {
    if (page_ == MAP_FAILED) throw systemError("cannot map a page for the number of this process");
    (void)::madvise(page_, kPageBytes, MADV_WIPEONFORK);  // Linux 4.14; in older kernels the process id distinguishes a
                                                          // child
  }
  ProcessNumber(const ProcessNumber&) = delete;
  ProcessNumber& operator=(const ProcessNumber&) = delete;

  Key value() {
    std::array<std::uint64_t, 2> words{};
    for (std::size_t i = 0; i < words.size(); ++i) words[i] = wordAt(i);
    Key number;
    std::memcpy(number.data(), words.data(), number.size());
    return number;
  }

 private:
  static constexpr std::size_t kPageBytes = 4096;

  // The first thread that needs a word creates it.
  std::uint64_t wordAt(std::size_t index) {
    const std::atomic_ref word(static_cast<std::uint64_t*>(page_)[index]);
    std::uint64_t found = word.load();
    while (found == 0) {
      std::uint64_t fresh = 0;
      const Key random = randomKey();
      std::memcpy(&fresh, random.data(), sizeof fresh);
      if (word.compare_exchange_strong(found, fresh)) found = fresh;
    }
    return found;
  }

  void* page_;
};

Key numberOfThisProcess() {
  static ProcessNumber number;
  return number.value();
}

}  // namespace

HostIdentity HostIdentity::current() {
  HostIdentity self{};
  (void)::gethostname(self.hostName.data(), self.hostName.size() - 1);
  store(self.bootId, firstLineOf("/proc/sys/kernel/random/boot_id"));
  self.netNamespace = inodeOf("/proc/self/ns/net");
  self.ipcNamespace = inodeOf("/proc/self/ns/ipc");
  self.pidNamespace = inodeOf("/proc/self/ns/pid");
  self.processStart = startOfProcess("self");
  self.processId = ::getpid();
  self.processNumber = numberOfThisProcess();
  return self;
}

// Without boot ids, host names decide. Containers of one kernel share the boot id, whatever their names are.
bool HostIdentity::sameKernel(const HostIdentity& other) const {
  if (bootId != other.bootId) return false;
  return bootId[0] != 0 || hostName == other.hostName;
}

bool HostIdentity::sameHost(const HostIdentity& other) const {
  return sameKernel(other) && netNamespace == other.netNamespace;
}

// Compares what no other process can share. Without /proc, processes in separate namespaces may agree in everything
// else.
bool HostIdentity::sameProcess(const HostIdentity& other) const {
  return sameKernel(other) && processNumber == other.processNumber && processId == other.processId;
}

bool canWatch(const HostIdentity& own, const HostIdentity& other) {
  const bool known = own.pidNamespace != 0 && own.processStart != 0 && other.processStart != 0;
  return known && own.sameKernel(other) && own.pidNamespace == other.pidNamespace && !own.sameProcess(other);
}

Fd openProcess(const HostIdentity& identity) {
#ifdef SYS_pidfd_open
  Fd process(static_cast<int>(::syscall(SYS_pidfd_open, identity.processId, 0)));
  if (!process || startOfProcess(std::to_string(identity.processId)) != identity.processStart) return {};
  (void)::fcntl(process.get(), F_SETFD, FD_CLOEXEC);
  return process;
#else
  (void)identity;
  return {};
#endif
}

bool awaitEnd(const HostIdentity& own, const HostIdentity& other, Deadline deadline) {
  if (!canWatch(own, other)) return true;
  const Fd process = openProcess(other);
  if (!process) return true;
  pollfd ended{process.get(), POLLIN, 0};
  int found = -1;
  do {
    found = ::poll(&ended, 1, deadline.leftMs());
  } while (found < 0 && errno == EINTR && !deadline.expired());
  return found > 0;
}

}  // namespace moe::bootstrap
