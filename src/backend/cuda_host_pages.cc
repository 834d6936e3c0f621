#include <unistd.h>

#include <map>
#include <mutex>
#include <vector>

#include "backend/cuda_memory.h"
#include "backend/cuda_raii.h"

namespace moe {
namespace {

unsigned flagsFor(HostPages kind) {
  const unsigned flags = cudaHostRegisterMapped | cudaHostRegisterPortable;
  return kind == HostPages::registers ? flags | cudaHostRegisterIoMemory : flags;
}

// CUDA registers a page once per process. But a driver allocates its queues on its heap, several in a page, and ranks
// may be threads of one process. So this registry counts the users of a page. The last user unregisters it before the
// driver frees it.
class PageRegistry {
 public:
  static PageRegistry& ofProcess() {
    static PageRegistry registry;
    return registry;
  }

  void add(std::uintptr_t page, std::size_t bytes, HostPages kind) {
    const std::lock_guard lock(mutex_);
    Page& known = pages_[page];
    if (known.users == 0) known.ours = enter(page, bytes, kind);
    ++known.users;
  }
  void remove(std::uintptr_t page) noexcept {
    const std::lock_guard lock(mutex_);
    const auto found = pages_.find(page);
    if (found == pages_.end() || --found->second.users > 0) return;
    if (found->second.ours && cudaHostUnregister(reinterpret_cast<void*>(page)) != cudaSuccess) cudaGetLastError();
    pages_.erase(found);
  }

 private:
  struct Page {
    int users = 0;
    bool ours = false;  // false: the program had registered it
  };

  // Returns false if the page was already registered.
  bool enter(std::uintptr_t page, std::size_t bytes, HostPages kind) {
    const cudaError_t error = cudaHostRegister(reinterpret_cast<void*>(page), bytes, flagsFor(kind));
    if (error == cudaSuccess) return true;
    cudaGetLastError();
    if (error == cudaErrorHostMemoryAlreadyRegistered) return false;
    pages_.erase(page);
    const char* what = kind == HostPages::memory ? "an adapter's queue" : "an adapter's registers";
    throw Error(moeUnsupported, std::string("the GPU cannot reach ") + what + ": cudaHostRegister: " + cudaText(error));
  }

  std::mutex mutex_;
  std::map<std::uintptr_t, Page> pages_;
};

// The pages of one piece of memory. They are released with this object.
class SharedPages {
 public:
  explicit SharedPages(int device) : device_(device) {}
  ~SharedPages() {
    const DeviceScope scope(device_);
    for (const std::uintptr_t page : pages_) PageRegistry::ofProcess().remove(page);
  }
  SharedPages(const SharedPages&) = delete;
  SharedPages& operator=(const SharedPages&) = delete;

  void add(std::uintptr_t page, std::size_t bytes, HostPages kind) {
    pages_.reserve(pages_.size() + 1);
    PageRegistry::ofProcess().add(page, bytes, kind);
    pages_.push_back(page);
    void* seen = nullptr;
    const cudaError_t error = cudaHostGetDevicePointer(&seen, reinterpret_cast<void*>(page), 0);
    if (error == cudaSuccess && seen == reinterpret_cast<void*>(page)) return;
    cudaGetLastError();
    throw Error(moeUnsupported,
                "the GPU maps an adapter's queue at an address that differs from the host's, or not at all");
  }

 private:
  int device_;
  std::vector<std::uintptr_t> pages_;
};

}  // namespace

Memory shareHostPages(void* begin, std::size_t bytes, HostPages kind, int device) {
  const DeviceScope scope(device);
  const auto pageBytes = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  const auto first = reinterpret_cast<std::uintptr_t>(begin);
  auto pages = std::make_shared<SharedPages>(device);
  for (std::uintptr_t page = first / pageBytes * pageBytes; page < first + bytes; page += pageBytes) {
    pages->add(page, pageBytes, kind);
  }
  return {std::move(pages), static_cast<std::uint8_t*>(begin)};
}

}  // namespace moe
