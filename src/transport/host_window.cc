// A window in host memory: a memfd, mapped by the processes of one host. The descriptor travels over a UNIX socket, so
// nothing can be left behind in /dev/shm. The file is sealed. If a process could truncate it, every access behind its
// end would be a SIGBUS in all ranks.
#include "transport/host_window.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <csignal>
#include <cstring>

#include "base/error.h"
#include "base/signal_held.h"

namespace moe {
namespace {

constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;

Fd makeFile(std::size_t bytes) {
  Fd fd(::memfd_create("moecomm-window", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!fd) throw systemError("cannot create the window (memfd_create)");
  SignalHeld tooLarge(SIGXFSZ);
  if (::ftruncate(fd.get(), static_cast<off_t>(bytes)) != 0) {
    const int error = errno;
    if (error == EFBIG) tooLarge.forget();
    throw Error(moeSystemError, "cannot size the window to " + std::to_string(bytes) + " bytes: " + errorText(error));
  }
  if (::fcntl(fd.get(), F_ADD_SEALS, kSeals) != 0) throw systemError("cannot seal the size of the window");
  return fd;
}

// Throws unless the mapped window is sure to stay as large as its owner says.
void requireWindowFile(int fd, std::uint64_t bytes, const std::string& whose) {
  const int seals = ::fcntl(fd, F_GET_SEALS);
  if (seals < 0 || (seals & F_SEAL_SHRINK) == 0) {
    throw Error(moeRemoteError, whose + " is not sealed, so its owner could truncate it");
  }
  struct stat info {};
  if (::fstat(fd, &info) != 0) throw systemError("cannot see how large " + whose + " is");
  if (static_cast<std::uint64_t>(info.st_size) == bytes) return;
  throw Error(moeRemoteError, whose + " is a file of " + std::to_string(info.st_size) +
                                  " bytes, but its owner announced " + std::to_string(bytes));
}

}  // namespace

HostRange::HostRange(std::size_t bytes, std::string whose) : whose_(std::move(whose)) {
  bytes_ = bytes;
}

HostRange::~HostRange() {
  if (base_ != nullptr) ::munmap(base_, bytes_);
}

// The reservation takes the place of the mapping at once, so that no other mapping of the process can get there.
void HostRange::unmap() {
  if (!mapped_) return;
  constexpr int kReserved = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED;
  if (::mmap(base_, bytes_, PROT_NONE, kReserved, -1, 0) == MAP_FAILED) {
    throw systemError("cannot unmap " + whose_ + ", whose addresses must stay reserved");
  }
  mapped_ = false;
}

void HostRange::map(const MemoryHandle& handle) {
  const auto* fd = std::get_if<Fd>(&handle);
  if (fd == nullptr) throw Error(moeUnsupported, whose_ + " is host memory, which has no handle of the fabric");
  mapFile(fd->get());
}

void HostRange::mapFile(int fd) {
  requireWindowFile(fd, bytes_, whose_);
  const int flags = base_ == nullptr ? MAP_SHARED : MAP_SHARED | MAP_FIXED;
  void* address = ::mmap(base_, bytes_, PROT_READ | PROT_WRITE, flags, fd, 0);
  if (address == MAP_FAILED) throw systemError("cannot map " + std::to_string(bytes_) + " bytes of " + whose_);
  base_ = static_cast<std::uint8_t*>(address);
  mapped_ = true;
  ::madvise(address, bytes_, MADV_HUGEPAGE);  // where the kernel supports it; otherwise nothing is lost
}

// Pages that nobody touches take no memory.
void HostRange::mapScratch() {
  constexpr int kPrivate = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
  const int flags = base_ == nullptr ? kPrivate : kPrivate | MAP_FIXED;
  void* address = ::mmap(base_, bytes_, PROT_READ | PROT_WRITE, flags, -1, 0);
  if (address == MAP_FAILED) throw systemError("cannot map memory in place of " + whose_);
  base_ = static_cast<std::uint8_t*>(address);
  mapped_ = true;
}

HostWindow::HostWindow(std::size_t bytes, const Allocator& allocator) : bytes_(bytes) {
  if (allocator) {
    memory_ = allocator.take(bytes, moeMemoryWindow);
    std::memset(memory_.get(), 0, bytes);
    return;
  }
  own_ = std::make_shared<HostRange>(bytes, "the window");
  range_ = own_;
  HostWindow::takeAnew();
  memory_ = memoryOf(range_);
}

void HostWindow::describe(WindowCard* card) const {
  card->sharedOwner = reinterpret_cast<std::uint64_t>(&memory_);
  card->bytes = bytes_;
}

PeerWindow HostWindow::open(int rank, const WindowCard& mine, const WindowCard& peer, const FetchFd& fetch) const {
  const std::string whose = "the window of rank " + std::to_string(rank);
  if (mine.host.sameProcess(peer.host)) return openSameProcess(peer);
  if (!range_) {
    throw Error(moeUnsupported, whose + " is in another process: config.allocate with the host backend needs all " +
                                    "ranks in one process");
  }
  const MemoryHandle handle = handleOf(rank, mine, peer, fetch);
  const std::shared_ptr<AddressRange> range = rangeFor(peer.bytes, whose);
  range->map(handle);
  return {memoryOf(range), transportOf(handle, moeTransportShm), range};
}

PeerWindow HostWindow::openLost(int rank, const WindowCard& peer) const {
  const std::shared_ptr<AddressRange> range = rangeFor(peer.bytes, "the window of rank " + std::to_string(rank));
  range->mapScratch();
  return {memoryOf(range), moeTransportShm, range};
}

std::string HostWindow::whyFixed() const {
  return range_ ? "" : kCallersMemory;
}

void HostWindow::takeAnew() {
  Fd fd = makeFile(bytes_);
  own_->mapFile(fd.get());
  fd_ = std::move(fd);
}

std::shared_ptr<AddressRange> HostWindow::rangeFor(std::size_t bytes, const std::string& whose) const {
  return std::make_shared<HostRange>(bytes, whose);
}

std::unique_ptr<Window> makeHostWindow(std::size_t bytes, const Allocator& allocator) {
  return std::make_unique<HostWindow>(bytes, allocator);
}

}  // namespace moe
