// Window memory for a framework's allocator, whose functions get no communicator (docs/decisions/0088). Threads say
// which communicator serves them, and a table of the process says which heap a block came from.
#include <fmt/format.h>

#include <atomic>
#include <map>
#include <mutex>

#include "api/guard.h"

using moe::Comm;
using moe::Error;
using moe::WindowHeap;

namespace {

// The number in the table of the heap that serves this thread; 0: none.
thread_local constinit std::uint64_t serving = 0;

class Table {
 public:
  std::uint64_t numberOf(const std::shared_ptr<WindowHeap>& heap) {
    const std::scoped_lock lock(mutex_);
    std::erase_if(heaps_, [](const auto& entry) { return entry.second.expired(); });
    for (const auto& [number, known] : heaps_) {
      if (known.lock() == heap) return number;
    }
    heaps_[++numbers_] = heap;
    return numbers_;
  }
  // NULL if its communicator and all of its blocks are gone.
  std::shared_ptr<WindowHeap> heapOf(std::uint64_t number) {
    const std::scoped_lock lock(mutex_);
    const auto found = heaps_.find(number);
    return found == heaps_.end() ? nullptr : found->second.lock();
  }
  void add(void* block, const std::shared_ptr<WindowHeap>& heap) {
    const std::scoped_lock lock(mutex_);
    blocks_[block] = heap;
  }
  std::shared_ptr<WindowHeap> remove(void* block) {
    const std::scoped_lock lock(mutex_);
    const auto found = blocks_.extract(block);
    return found.empty() ? nullptr : std::move(found.mapped());
  }

  pid_t process() const { return process_; }

 private:
  const pid_t process_ = ::getpid();
  std::mutex mutex_;
  std::uint64_t numbers_ = 0;
  std::map<std::uint64_t, std::weak_ptr<WindowHeap>> heaps_;
  std::map<void*, std::shared_ptr<WindowHeap>> blocks_;
};

// Never destroyed: frameworks free memory while the process ends. A forked process gets its own, because the lock of an
// inherited one may be held for ever.
Table& table() {
  static std::atomic<Table*> current{nullptr};
  Table* known = current.load();
  while (known == nullptr || known->process() != ::getpid()) {
    auto fresh = std::make_unique<Table>();
    if (current.compare_exchange_strong(known, fresh.get())) return *fresh.release();
  }
  return *known;
}

void* takeFor(std::int64_t bytes, std::int32_t device) {
  const std::shared_ptr<WindowHeap> heap = serving == 0 ? nullptr : table().heapOf(serving);
  if (!heap || !heap->isOpen()) {
    throw Error(moeInvalidUsage, serving == 0 ? "no communicator serves this thread (moeMemPoolUse)"
                                              : "the communicator that served this thread has been destroyed");
  }
  if (bytes < 0) throw Error(moeInvalidArgument, fmt::format("bytes is {}, must be 0 or more", bytes));
  if (heap->device() >= 0 && heap->device() != device) {
    throw Error(moeInvalidArgument, fmt::format("device is {}, but the communicator that serves this thread has its "
                                                "memory on device {}",
                                                device, heap->device()));
  }
  void* memory = heap->take(static_cast<std::uint64_t>(bytes));
  try {
    if (memory != nullptr) table().add(memory, heap);
  } catch (...) {
    heap->giveBack(memory);
    throw;
  }
  return memory;
}

}  // namespace

moeResult_t moeMemPoolUse(moeComm_t comm) {
  serving = 0;
  if (comm == nullptr) return moeSuccess;
  if (!Comm::is(comm)) return moe::refuseComm(comm);
  auto* own = reinterpret_cast<Comm*>(comm);
  return moe::guardAlive(own, [&] {
    if (own->allocator()) {
      throw Error(moeInvalidUsage,
                  "the window is memory of config.allocate, whose functions a framework's allocator "
                  "must not call");
    }
    serving = table().numberOf(own->heap());
  });
}

void* moeMemPoolAlloc(int64_t bytes, int32_t device, moeStream_t) {
  void* memory = nullptr;
  moe::guard(nullptr, [&] {
    try {
      memory = takeFor(bytes, device);
    } catch (const Error& error) {
      throw Error(error.result(), fmt::format("moeMemPoolAlloc: {}", error.what()));
    }
  });
  return memory;
}

void moeMemPoolFree(void* memory, int64_t, int32_t, moeStream_t) {
  if (memory == nullptr) return;
  moe::guard(nullptr, [&] {
    const std::shared_ptr<WindowHeap> heap = table().remove(memory);
    if (!heap) throw Error(moeInvalidArgument, "moeMemPoolFree: memory was not returned by moeMemPoolAlloc");
    moe::awaitDevice(heap->device());
    heap->giveBack(memory);
  });
}
