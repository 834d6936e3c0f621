// Communicators and their window memory, and calls without a communicator. Included by moecomm.hpp.
#ifndef MOECOMM_COMMUNICATOR_HPP_
#define MOECOMM_COMMUNICATOR_HPP_

#include <moecomm.h>

#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <moecomm/arguments.hpp>
#include <moecomm/basics.hpp>

namespace moecomm {

// ---- Without a communicator -----------------------------------------------------------------------------------------

// The version of the library that is loaded, to compare with MOE_VERSION_CODE.
inline std::int32_t version() {
  std::int32_t number = 0;
  check(moeGetVersion(&number));
  return number;
}

// The limits of the library.
inline moeLimits_t limits() {
  moeLimits_t found = MOE_LIMITS_INITIALIZER;
  check(moeGetLimits(nullptr, &found));
  return found;
}

// Makes the id of a new group, on one rank. Its bytes go to the others, and that process lives until all have joined.
inline moeUniqueId_t makeUniqueId() {
  moeUniqueId_t id;
  check(moeGetUniqueId(&id));
  return id;
}

// The bytes that a rank of such a group would allocate.
inline moeMemorySize_t memorySize(std::int32_t nranks, const moeConfig_t& config = Config()) {
  moeMemorySize_t bytes = MOE_MEMORY_SIZE_INITIALIZER;
  check(moeCommGetMemorySize(nranks, &config, &bytes));
  return bytes;
}

// Counts the layout of a dispatch: moeGetDispatchLayout. `layout` starts from MOE_DISPATCH_LAYOUT_INITIALIZER. Its
// indexType is that of the ids, unless these are a plain address; their weights are not read.
inline void countLayout(const Routing& routing, moeDispatchLayout_t layout, moeStream_t stream = nullptr) {
  if (routing.tokens_ < 0 && routing.entries_ > 0) layout.indexType = routing.indexType_;
  check(moeGetDispatchLayout(routing.idx_, routing.tokensOf(layout.topk), &layout, stream));
}

// ---- Communicators --------------------------------------------------------------------------------------------------

namespace detail {

struct CommState {
  CommState() = default;
  CommState(const CommState&) = delete;
  CommState& operator=(const CommState&) = delete;
  ~CommState() { moeCommDestroy(comm); }
  moeComm_t comm = nullptr;
};

// The link from handles and window memory to their communicator, which may end before they do.
class CommLink {
 public:
  CommLink() = default;
  explicit CommLink(const std::shared_ptr<CommState>& state) : state_(state) {}
  // nullptr once it is destroyed.
  moeComm_t get() const noexcept {
    const std::shared_ptr<CommState> state = state_.lock();
    return state != nullptr ? state->comm : nullptr;
  }
  moeComm_t require() const {
    if (const moeComm_t comm = get()) return comm;
    throw Error(moeInvalidUsage, "the communicator has been destroyed");
  }

 private:
  std::weak_ptr<CommState> state_;
};

}  // namespace detail

// One rank's membership of a group.
class Communicator {
 public:
  Communicator() noexcept = default;  // empty
  Communicator(Communicator&&) noexcept = default;
  Communicator& operator=(Communicator&&) noexcept = default;  // ends what this one was before
  // moeCommInit: joins the group, blocks until all ranks have.
  Communicator(std::int32_t nranks, std::int32_t rank, const moeUniqueId_t& id, const moeConfig_t& config = Config())
      : state_(std::make_shared<detail::CommState>()) {
    check(moeCommInit(&state_->comm, nranks, rank, &id, &config));
  }
  // moeCommInitFromEnv: joins the group that moerun or another launcher has started.
  static Communicator fromEnv(const moeConfig_t& config = Config()) {
    Communicator joined;
    joined.state_ = std::make_shared<detail::CommState>();
    check(moeCommInitFromEnv(&joined.state_->comm, &config));
    return joined;
  }

  // Leaves the group. The handles and the window memory end with it. Idempotent.
  void destroy() {
    const std::shared_ptr<detail::CommState> state = std::move(state_);
    if (state != nullptr) check(moeCommDestroy(std::exchange(state->comm, nullptr)));
  }

  moeComm_t get() const noexcept { return state_ != nullptr ? state_->comm : nullptr; }
  explicit operator bool() const noexcept { return get() != nullptr; }

  // The first asynchronous failure, or moeSuccess. Never blocks, and throws only if the communicator is empty.
  moeResult_t asyncError() const {
    moeResult_t error = moeSuccess;
    ask(moeCommGetAsyncError, &error);
    return error;
  }
  // The sentence of asyncError, or else of the latest refused argument. After moeTimeout it takes up to two seconds.
  std::string lastError() const { return moeGetLastError(require()); }

  void abort() const { check(moeCommAbort(require()), get()); }
  void setTimeout(std::int32_t timeoutMs) const { check(moeCommSetTimeout(require(), timeoutMs), get()); }
  // Collective. The window's memory goes back to the system, and fresh memory comes to the same addresses.
  void suspend() const { check(moeCommSuspend(require()), get()); }
  void resume() const { check(moeCommResume(require()), get()); }
  void disconnect() const { check(moeCommDisconnect(require()), get()); }
  void reconnect(const moeUniqueId_t& id) const { check(moeCommReconnect(require(), &id), get()); }
  // Goes on after a failure, without ranks that have died or left, and without `evicted` ones, if these are at most
  // `lossesMax`. Collective. Returns the lost ranks, ascending. `memoryFresh`: as in moeRecovery_t; nullptr: not
  // wanted.
  std::vector<std::int32_t> recover(std::int32_t timeoutMs, std::int32_t lossesMax = 0,
                                    const std::vector<std::int32_t>& evicted = {}, bool* memoryFresh = nullptr) const {
    std::vector<std::int32_t> lost(static_cast<std::size_t>(info().nranks));
    moeRecovery_t recovery = MOE_RECOVERY_INITIALIZER;
    recovery.lossesMax = lossesMax;
    recovery.lost = lost.data();
    recovery.evicted = evicted.empty() ? nullptr : evicted.data();
    recovery.evictedCount = static_cast<std::int32_t>(evicted.size());
    check(moeCommRecover(require(), &recovery, timeoutMs), get());
    lost.resize(static_cast<std::size_t>(recovery.losses));
    if (memoryFresh != nullptr) *memoryFresh = recovery.memoryFresh != 0;
    return lost;
  }
  // The id with which a new process takes the number of a lost rank, by the constructor above. Survivors take it in at
  // their next recover().
  moeUniqueId_t replace(std::int32_t rank) const {
    moeUniqueId_t id;
    check(moeCommReplace(require(), rank, &id), get());
    return id;
  }
  // `path` nullptr: in config.dumpFolder.
  void dump(const char* path = nullptr) const { check(moeCommDump(require(), path), get()); }

  moeLimits_t limits() const {
    moeLimits_t found = MOE_LIMITS_INITIALIZER;
    ask(moeGetLimits, &found);
    return found;
  }
  moeCommInfo_t info() const {
    moeCommInfo_t found = MOE_COMM_INFO_INITIALIZER;
    ask(moeCommGetInfo, &found);
    return found;
  }
  moePeerInfo_t peer(std::int32_t rank) const {
    moePeerInfo_t found = MOE_PEER_INFO_INITIALIZER;
    check(moeCommGetPeerInfo(require(), rank, &found), get());
    return found;
  }

 private:
  friend class Handle;
  friend class MemPoolUse;
  template <class Element>
  friend class WindowMemory;

  moeComm_t require() const {
    if (get() == nullptr) throw Error(moeInvalidUsage, "the communicator is empty: destroyed, or moved from");
    return get();
  }
  template <class Function, class Answer>
  void ask(Function function, Answer* answer) const {
    const moeComm_t comm = require();
    check(function(comm, answer), comm);
  }

  std::shared_ptr<detail::CommState> state_;
};

// ---- Window memory --------------------------------------------------------------------------------------------------

// `size` elements of this rank's window, out of config.heapBytes. Converts to Span.
template <class Element>
class WindowMemory {
 public:
  WindowMemory() noexcept = default;  // empty
  WindowMemory(const Communicator& comm, std::size_t size) : comm_(comm.state_), size_(size) {
    if (size > std::numeric_limits<std::size_t>::max() / sizeof(Element))
      throw Error(moeInvalidArgument, "size is " + std::to_string(size) + " elements, more than an address space");
    void* memory = nullptr;
    check(moeMemAlloc(comm.require(), size * sizeof(Element), &memory), comm.get());
    data_ = static_cast<Element*>(memory);
  }
  WindowMemory(WindowMemory&& other) noexcept { swap(other); }
  WindowMemory& operator=(WindowMemory&& other) noexcept {
    WindowMemory(std::move(other)).swap(*this);
    return *this;
  }
  ~WindowMemory() { free(); }

  // Gives the memory back. No queued work may still use it. Idempotent, and nothing to do once the communicator has
  // ended.
  void destroy() {
    const moeComm_t comm = comm_.get();
    check(free(), comm);
  }

  Element* data() const noexcept { return data_; }
  std::size_t size() const noexcept { return size_; }

 private:
  moeResult_t free() noexcept {
    const moeComm_t comm = comm_.get();
    Element* const memory = std::exchange(data_, nullptr);
    size_ = 0;
    return comm != nullptr && memory != nullptr ? moeMemFree(comm, memory) : moeSuccess;
  }
  void swap(WindowMemory& other) noexcept {
    std::swap(comm_, other.comm_);
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
  }

  detail::CommLink comm_;
  Element* data_ = nullptr;
  std::size_t size_ = 0;
};

// While it lives, moeMemPoolAlloc takes window memory of a communicator on the thread that has made it. One at a time.
// moeMemPoolFree needs none. Frameworks' allocators find both functions by their names.
class MemPoolUse {
 public:
  explicit MemPoolUse(const Communicator& comm) { check(moeMemPoolUse(comm.require()), comm.get()); }
  MemPoolUse(const MemPoolUse&) = delete;
  MemPoolUse& operator=(const MemPoolUse&) = delete;
  ~MemPoolUse() { moeMemPoolUse(nullptr); }
};

}  // namespace moecomm
#endif  // MOECOMM_COMMUNICATOR_HPP_
