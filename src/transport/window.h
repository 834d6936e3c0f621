// The symmetric window: this rank's part of it, and how it reaches the peers' parts. There is one implementation per
// kind of memory: host (memfd) and cuda (file descriptor, handle of the NVLink fabric, or IPC). Threads of one process
// use a window's address.
#pragma once

#include <sched.h>

#include <array>
#include <cstdint>
#include <functional>
#include <memory>

#include "backend/address_range.h"
#include "backend/backend.h"
#include "backend/options.h"
#include "base/deadline.h"
#include "base/fd.h"
#include "bootstrap/group/host_identity.h"

namespace moe {

// The processors that a thread may run on, as ranks tell each other. Numbers are those of the kernel, also in
// containers.
using ProcessorMask = std::array<std::uint64_t, CPU_SETSIZE / 64>;

// No processor if it is not known, as on machines with more than 1024.
inline ProcessorMask processorsOfThisThread() {
  ProcessorMask mask{};
  cpu_set_t allowed;
  if (::sched_getaffinity(0, sizeof allowed, &allowed) != 0) return mask;
  for (std::size_t cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (CPU_ISSET(cpu, &allowed)) mask[cpu / 64] |= std::uint64_t{1} << cpu % 64;
  }
  return mask;
}

// The card of a rank, with facts about itself and its window, as bytes.
struct WindowCard {
  bootstrap::HostIdentity host{};
  std::int32_t device = -1;
  std::array<std::uint8_t, 16> deviceUuid{};
  // The address of the owner's Memory object. For ranks of the same process, during init only.
  std::uint64_t sharedOwner = 0;
  std::array<std::uint8_t, 64> ipcHandle{};
  std::uint64_t ipcOffset = 0;
  std::uint64_t sharedBytes = 0;  // bytes of GPU memory that is mapped by a MemoryHandle; 0: mapped by IPC
  std::int32_t inFabric = 0;      // 1: the memory has a handle of the fabric
  FabricHandle fabricHandle{};
  std::uint64_t bytes = 0;
  ProcessorMask processors{};  // processors of the thread that makes the communicator
};

// A peer's window as mapped here.
struct PeerWindow {
  Memory memory;  // keeps the mapping alive
  int transport = moeTransportSelf;
  // The mapping, if its memory can change under the same addresses. NULL: the peer is this rank or a thread of this
  // process, so its own range changes; or the mapping is fixed (Window::whyFixed).
  std::shared_ptr<AddressRange> range = nullptr;
};

// Fetches the file descriptor that a rank of this host serves.
using FetchFd = std::function<Fd(int rank)>;

// What Window::whyFixed says of memory of the caller's allocator.
inline constexpr const char* kCallersMemory =
    "is memory of config.allocate, which only the caller can give back: leave config.allocate NULL, or destroy the "
    "communicator instead";

class Window {
 public:
  virtual ~Window() = default;

  std::uint8_t* base() const { return memory_.get(); }
  const Memory& memory() const { return memory_; }
  // The descriptor that peers fetch, or -1.
  int fd() const { return fd_.get(); }
  // How processes map it, for the log.
  virtual std::string sharing() const { return "a file descriptor"; }
  // Fills in how peers reach this window.
  virtual void describe(WindowCard* card) const = 0;
  // What maps the window of `rank` here, if it has a MemoryHandle. Throws moeUnsupported if this host cannot map it.
  MemoryHandle handleOf(int rank, const WindowCard& mine, const WindowCard& peer, const FetchFd& fetch) const {
    if (peer.inFabric != 0 && (fabricFirst_ || !mine.host.sameHost(peer.host))) return peer.fabricHandle;
    requireSameHost(rank, mine, peer);
    return fetch(rank);
  }
  // Maps the window of `rank`. Throws moeUnsupported if it cannot be reached by loads and stores.
  virtual PeerWindow open(int rank, const WindowCard& mine, const WindowCard& peer, const FetchFd& fetch) const = 0;

  // For a rank that is lost: scratch memory where its window would be mapped. It stores nothing that anybody reads.
  virtual PeerWindow openLost(int rank, const WindowCard& peer) const = 0;

  // ---- Memory that changes while the addresses stay, here and where peers have mapped the window ----

  // Why that is impossible, as the end of a sentence about the window; empty: it is possible.
  virtual std::string whyFixed() const = 0;
  // Gives the memory back to the system, with the descriptor. No step may be running, and peers must have unmapped it:
  // a mapping keeps the memory.
  void giveBack() {
    range_->unmap();
    fd_.reset();
  }
  // Takes fresh memory, which is zero, to the same addresses. Peers fetch its descriptor. Throws, and leaves the window
  // without memory.
  virtual void takeAnew() = 0;
  // False between giveBack() and takeAnew().
  bool hasMemory() const { return !range_ || range_->mapped(); }
  // The bytes of memory that giveBack() gives back.
  std::size_t rangeBytes() const { return range_ ? range_->bytes() : 0; }

 protected:
  static void requireSameHost(int rank, const WindowCard& mine, const WindowCard& peer) {
    if (mine.host.sameHost(peer.host)) return;
    throw Error(moeUnsupported, "rank " + std::to_string(rank) +
                                    " is on another host, and its window has no handle of the NVLink fabric");
  }
  PeerWindow openSameProcess(const WindowCard& peer) const {
    // The card is bytes, so the address travels as a number.
    return {*reinterpret_cast<const Memory*>(peer.sharedOwner),  // NOLINT(performance-no-int-to-ptr)
            moeTransportDirect};
  }

  // The moeTransport value of memory that `handle` maps; `local`: that of a descriptor.
  static int transportOf(const MemoryHandle& handle, int local) {
    return std::holds_alternative<FabricHandle>(handle) ? moeTransportFabric : local;
  }

  Memory memory_;
  std::shared_ptr<AddressRange> range_;  // NULL: the memory is fixed
  Fd fd_;                                // of the range's memory
  bool fabricFirst_ = false;             // windows of this host, too, are mapped by their handles of the fabric
};

std::unique_ptr<Window> makeHostWindow(std::size_t bytes, const Allocator& allocator);
// `inFabric`: the window has a handle of the fabric, unless it is shared by CUDA IPC.
std::unique_ptr<Window> makeCudaWindow(std::size_t bytes, const Allocator& allocator, int device, WindowSharing sharing,
                                       bool inFabric = false);

}  // namespace moe
