// Where a rank runs, as a plain value that ranks exchange. It shows which ranks share a kernel, a network namespace or
// a process.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <type_traits>

#include "base/deadline.h"
#include "base/fd.h"
#include "bootstrap/net/keyed_hash.h"

namespace moe::bootstrap {

struct HostIdentity {
  std::array<char, 64> hostName;  // ends with a zero byte
  std::array<char, 48> bootId;    // boot id of the running kernel; the same in all its containers. Empty if unknown
  std::uint64_t netNamespace;     // inode numbers; 0 if unknown
  std::uint64_t ipcNamespace;
  std::uint64_t pidNamespace;
  std::uint64_t processStart;  // clock ticks after boot: distinguishes processes that had the same id
  std::int32_t processId;      // in its own process namespace
  std::int32_t reserved;
  Key processNumber;  // random, of this process alone: a forked child has another one

  static HostIdentity current();  // throws moeSystemError if there is no random number

  bool sameKernel(const HostIdentity& other) const;
  bool sameHost(const HostIdentity& other) const;     // descriptors can be passed (fd_channel.h)
  bool sameProcess(const HostIdentity& other) const;  // pointers can be used directly
};
// Whether a process runs on this kernel and can be watched: its id means the same here, and it is another one.
bool canWatch(const HostIdentity& own, const HostIdentity& other);
// Opens such a process, or none if it has ended. While the descriptor is open, no other process gets its id. It is
// readable when the process has ended.
Fd openProcess(const HostIdentity& identity);
// Waits until a process has ended. False: it still runs. A process that cannot be watched counts as ended.
bool awaitEnd(const HostIdentity& own, const HostIdentity& other, Deadline deadline);

// The start of a process in clock ticks after boot; 0 if unknown. `process` is its id, or "self".
std::uint64_t startOfProcess(const std::string& process);

static_assert(std::is_trivially_copyable_v<HostIdentity> && sizeof(HostIdentity) == 168);

}  // namespace moe::bootstrap
