// libfakemlx5.so, loaded with LD_PRELOAD, sits between libibverbs with its providers and the C library. It plays a
// ConnectX-7 without any hardware or kernel support. It is for tests only and is never installed.
#include <dlfcn.h>
#include <linux/netlink.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

#include <atomic>
#include <cerrno>
#include <cstdarg>

#include "fake_mlx5/engine.h"
#include "fake_mlx5/fake_ioctl.h"
#include "fake_mlx5/fake_kernel.h"
#include "fake_mlx5/fake_sysfs.h"

namespace moe::test {
namespace {

const FakeSysfs sysfs;
const struct AtExit {
  ~AtExit() { Engine::shutDown(); }
} atExit;

// For each open descriptor, the number of its device plus one.
constexpr int kDescriptorsMax = 4096;
std::atomic<int> opened[kDescriptorsMax];

bool isDevice(int fd) {
  return fd >= 0 && fd < kDescriptorsMax && opened[fd].load() != 0;
}
bool isDevice(const char* path) {
  return fakeDeviceOf(path) >= 0;
}

int refuse(int error) {
  errno = error;
  return -1;
}

// The next function of this name after this library.
template <class Function>
Function* next(const char* name) {
  return reinterpret_cast<Function*>(dlsym(RTLD_NEXT, name));
}

// An event counter stands in for the device, because its descriptor behaves like any other.
int openDevice(const char* path) {
  const int fd = eventfd(0, EFD_CLOEXEC), device = fakeDeviceOf(path);
  if (fd < 0) return fd;
  const int error = fd < kDescriptorsMax ? Engine::instance().open(fd, static_cast<unsigned>(device)) : EMFILE;
  if (error != 0) {
    next<decltype(close)>("close")(fd);
    return refuse(error);
  }
  opened[fd] = device + 1;
  return fd;
}

int describeDevice(int device, struct stat* status) {
  *status = {};
  status->st_mode = S_IFCHR | 0666;
  status->st_rdev = makedev(kDeviceMajor, kDeviceMinor + static_cast<unsigned>(device));
  return 0;
}

}  // namespace
}  // namespace moe::test

using moe::test::isDevice, moe::test::next, moe::test::refuse;

#define MOE_INTERPOSED extern "C" __attribute__((visibility("default")))

MOE_INTERPOSED int open(const char* path, int flags, ...) {
  va_list rest;
  va_start(rest, flags);
  const mode_t mode = va_arg(rest, mode_t);
  va_end(rest);
  return isDevice(path) ? moe::test::openDevice(path) : next<decltype(open)>("open")(path, flags, mode);
}
MOE_INTERPOSED int open64(const char* path, int flags, ...) {
  va_list rest;
  va_start(rest, flags);
  const mode_t mode = va_arg(rest, mode_t);
  va_end(rest);
  return open(path, flags, mode);
}

MOE_INTERPOSED int close(int fd) {
  if (isDevice(fd)) {
    moe::test::opened[fd] = 0;
    moe::test::Engine::instance().close(fd);
  }
  return next<decltype(close)>("close")(fd);
}

MOE_INTERPOSED int stat(const char* path, struct stat* status) {
  return isDevice(path) ? moe::test::describeDevice(moe::test::fakeDeviceOf(path), status)
                        : next<decltype(stat)>("stat")(path, status);
}
MOE_INTERPOSED int stat64(const char* path, struct stat64* status) {
  return stat(path, reinterpret_cast<struct stat*>(status));  // both layouts are the same on 64-bit machines
}
MOE_INTERPOSED int fstat(int fd, struct stat* status) {
  return isDevice(fd) ? moe::test::describeDevice(moe::test::opened[fd] - 1, status)
                      : next<decltype(fstat)>("fstat")(fd, status);
}
MOE_INTERPOSED int fstat64(int fd, struct stat64* status) {
  return fstat(fd, reinterpret_cast<struct stat*>(status));
}

MOE_INTERPOSED int ioctl(int fd, unsigned long request, ...) {
  va_list rest;
  va_start(rest, request);
  void* argument = va_arg(rest, void*);
  va_end(rest);
  if (!isDevice(fd)) return next<decltype(ioctl)>("ioctl")(fd, request, argument);
  const int error = moe::test::answerIoctl(request, argument);
  return error == 0 ? 0 : refuse(error);
}

MOE_INTERPOSED ssize_t write(int fd, const void* bytes, size_t count) {
  if (!isDevice(fd)) return next<decltype(write)>("write")(fd, bytes, count);
  const int error = moe::test::answerCommand(fd, bytes);
  return error == 0 ? static_cast<ssize_t>(count) : refuse(error);
}

// The adapter's registers become plain memory, so that the adapter can read what was written to them. The memory is
// shared, so that the adapter can map it a second time. The offset encodes a kind of page and a number.
MOE_INTERPOSED void* mmap(void* at, size_t bytes, int protection, int flags, int fd, off_t offset) {
  auto* map = next<decltype(mmap)>("mmap");
  if (!isDevice(fd)) return map(at, bytes, protection, flags, fd, offset);
  void* page = map(at, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  const auto place = static_cast<std::uint64_t>(offset) / moe::test::kRegisterPageBytes;
  const bool isRegisters = (place >> 8 & 0xff) == 0;
  if (isRegisters && page != MAP_FAILED) {
    moe::test::Engine::instance().with([&](moe::test::Adapter& adapter) {
      adapter.doorbells().addPage(fd, static_cast<std::uint32_t>(place & 0xff), page);
    });
  }
  return page;
}
MOE_INTERPOSED void* mmap64(void* at, size_t bytes, int protection, int flags, int fd, off_t offset) {
  return mmap(at, bytes, protection, flags, fd, offset);
}

// Refuses the netlink socket. Without netlink, libibverbs looks into sysfs.
MOE_INTERPOSED int socket(int domain, int type, int protocol) {
  if (domain == AF_NETLINK && protocol == NETLINK_RDMA) return refuse(EPROTONOSUPPORT);
  return next<decltype(socket)>("socket")(domain, type, protocol);
}

// For tests, which find these functions by dlsym: the number of posters' mistakes in this process, and the count of a
// mishap.
MOE_INTERPOSED unsigned long fake_mlx5_violations() {
  return moe::test::Engine::instance().violations();
}
MOE_INTERPOSED unsigned long fake_mlx5_count(const char* name) {
  return moe::test::Engine::instance().count(name);
}
