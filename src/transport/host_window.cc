// A window in host memory: a memfd, mapped by the processes of one host. The descriptor travels over a UNIX socket, so
// nothing can be left behind in /dev/shm. The file is sealed. If a process could truncate it, every access behind its
// end would be a SIGBUS in all ranks.
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <csignal>
#include <cstring>

#include "base/error.h"
#include "base/signal_held.h"
#include "transport/window.h"

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

// The first mapping chooses the addresses.
class HostRange final : public AddressRange {
 public:
  HostRange(std::size_t bytes, std::string whose) : whose_(std::move(whose)) { bytes_ = bytes; }
  ~HostRange() override {
    if (base_ != nullptr) ::munmap(base_, bytes_);
  }

  // The reservation takes the place of the mapping at once, so that no other mapping of the process can get there.
  void unmap() override {
    if (!mapped_) return;
    constexpr int kReserved = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED;
    if (::mmap(base_, bytes_, PROT_NONE, kReserved, -1, 0) == MAP_FAILED) {
      throw systemError("cannot unmap " + whose_ + ", whose addresses must stay reserved");
    }
    mapped_ = false;
  }

  void map(int fd) override {
    requireWindowFile(fd, bytes_, whose_);
    const int flags = base_ == nullptr ? MAP_SHARED : MAP_SHARED | MAP_FIXED;
    void* address = ::mmap(base_, bytes_, PROT_READ | PROT_WRITE, flags, fd, 0);
    if (address == MAP_FAILED) throw systemError("cannot map " + std::to_string(bytes_) + " bytes of " + whose_);
    base_ = static_cast<std::uint8_t*>(address);
    mapped_ = true;
    ::madvise(address, bytes_, MADV_HUGEPAGE);  // where the kernel supports it; otherwise nothing is lost
  }

  // Pages that nobody touches take no memory.
  void mapScratch() override {
    constexpr int kPrivate = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
    const int flags = base_ == nullptr ? kPrivate : kPrivate | MAP_FIXED;
    void* address = ::mmap(base_, bytes_, PROT_READ | PROT_WRITE, flags, -1, 0);
    if (address == MAP_FAILED) throw systemError("cannot map memory in place of " + whose_);
    base_ = static_cast<std::uint8_t*>(address);
    mapped_ = true;
  }

 private:
  std::string whose_;
};

class HostWindow final : public Window {
 public:
  HostWindow(std::size_t bytes, const Allocator& allocator) : bytes_(bytes) {
    if (allocator) {
      memory_ = allocator.take(bytes, moeMemoryWindow);
      std::memset(memory_.get(), 0, bytes);
      return;
    }
    range_ = std::make_shared<HostRange>(bytes, "the window");
    takeAnew();
    memory_ = memoryOf(range_);
  }

  void describe(WindowCard* card) const override {
    card->sharedOwner = reinterpret_cast<std::uint64_t>(&memory_);
    card->bytes = bytes_;
  }

  PeerWindow open(int rank, const WindowCard& mine, const WindowCard& peer, const FetchFd& fetch) const override {
    const std::string whose = "the window of rank " + std::to_string(rank);
    if (mine.host.sameProcess(peer.host)) return openSameProcess(peer);
    if (!range_) {
      throw Error(moeUnsupported, whose + " is in another process: config.allocate with the host backend needs all " +
                                      "ranks in one process");
    }
    requireSameHost(rank, mine, peer);
    const auto range = std::make_shared<HostRange>(peer.bytes, whose);
    range->map(fetch(rank).get());
    return {memoryOf(range), moeTransportShm, range};
  }

  PeerWindow openLost(int rank, const WindowCard& peer) const override {
    const auto range = std::make_shared<HostRange>(peer.bytes, "the window of rank " + std::to_string(rank));
    range->mapScratch();
    return {memoryOf(range), moeTransportShm, range};
  }

  std::string whyFixed() const override { return range_ ? "" : kCallersMemory; }

  void takeAnew() override {
    Fd fd = makeFile(bytes_);
    range_->map(fd.get());
    fd_ = std::move(fd);
  }

 private:
  std::size_t bytes_;
};

}  // namespace

std::unique_ptr<Window> makeHostWindow(std::size_t bytes, const Allocator& allocator) {
  return std::make_unique<HostWindow>(bytes, allocator);
}

}  // namespace moe
