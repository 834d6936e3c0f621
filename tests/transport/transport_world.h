// Shared by the tests of transports between domains: ranks of one process, each a domain of its own, with a window in
// host memory.
#pragma once

#include <atomic>
#include <cstring>
#include <filesystem>
#include <memory>
#include <mutex>
#include <numeric>
#include <string>
#include <vector>

#include "device/policy/host/post.h"
#include "device/policy/host/queue_memory.h"
#include "device/queue/put_helper.h"
#include "support/base/log_lines.h"
#include "transport/transports.h"
#include "unit/bootstrap_world.h"

namespace moe::test {

inline bootstrap::Key tcpKeyOf(int rank) {
  return {7, 7, 7, static_cast<std::uint8_t>(rank)};
}

struct MemberOptions {
  std::size_t windowBytes = std::size_t{1} << 20;
  std::int64_t timeoutMs = 20000;
  std::string interfaceName = "lo";
  topology::RdmaSettings rdma;
  TcpOptions tcp;
  // `make` makes the transport, `makeBackend` its backend. The lines of the log go to `lines` if it is not null.
  std::function<std::unique_ptr<RemoteTransport>(RemoteSetup, const TcpOptions&)> make =
      [](RemoteSetup setup, const TcpOptions& tcpOptions) { return makeTcpTransport(std::move(setup), tcpOptions); };
  std::function<std::unique_ptr<Backend>()> makeBackend = [] { return makeHostBackend(); };
  LogLines* lines = nullptr;
  std::function<void()> hearGroup = [] {};
  std::function<bootstrap::Key(int rank)> keyOf = tcpKeyOf;
};

class Member {
 public:
  Member(int rank, int nranks, const MemberOptions& options)
      : orders_{0, nanosecondsOf(options.timeoutMs)},
        backend_(options.makeBackend()),
        window_(backend_->allocateHostVisible(options.windowBytes)),
        log_(options.lines == nullptr ? Log::Options{} : options.lines->options(), rank, nranks) {
    // The words of leaving ranks are the last of the window.
    const std::uint64_t leaving = options.windowBytes - static_cast<std::size_t>(nranks) * sizeof(Flag);
    RemoteSetup setup{rank,      nranks, {},      window_.get(),         options.windowBytes,
                      *backend_, log_,   orders_, options.interfaceName, options.rdma,
                      {},        leaving};
    for (int peer = 0; peer < nranks; ++peer) {
      if (peer != rank) setup.peers.push_back(peer);
    }
    setup.hearGroup = options.hearGroup;
    setup.keyOf = options.keyOf;
    setup.fail = [this](moeResult_t result, const std::string& sentence) {
      const std::lock_guard lock(mutex_);
      failures_.push_back({result, sentence});
    };
    transport_ = options.make(std::move(setup), options.tcp);
    view_ = transport_->view();
  }

  RemoteTransport& transport() { return *transport_; }
  void connect(const std::vector<CardBytes>& cards, std::chrono::milliseconds patience = 20s) {
    transport_->connect(cards, Deadline::after(patience));
    view_ = transport_->view();
  }
  bool finish(std::chrono::milliseconds patience = 20s) {
    return transport_->finish(Deadline::after(patience), [] { return false; });
  }
  void leave() { transport_.reset(); }
  // As a communicator does while its ranks work.
  void setTimeout(std::int64_t milliseconds) {
    HostQueueMemory().publish(&orders_.timeoutNs, nanosecondsOf(milliseconds));
  }

  // Posts as a step that continues: the transport's threads carry the put.
  bool post(const Put& put, std::chrono::milliseconds patience = 20s) {
    const bool posted = postQuietly(put, patience);
    if (view_.helper != nullptr) view_.helper->wake();
    return posted;
  }
  // Posts without waking a thread. helper() must carry the put.
  bool postQuietly(const Put& put, std::chrono::milliseconds patience = 20s) {
    const HostQueueMemory memory;
    const WaitOrders orders{0, nanosecondsOf(patience.count())};
    return moe::post(memory, view_, put, {memory.nanoseconds(), &orders});
  }
  const PutHelper& helper() const { return *view_.helper; }
  bool put(int to, std::uint64_t target, std::uint64_t source, std::size_t bytes) {
    return post(putBytes(to, target, source, static_cast<std::uint32_t>(bytes)));
  }
  bool putWord(int to, std::uint64_t target, std::uint64_t word) { return post(moe::putWord(to, target, word)); }

  std::uint8_t* at(std::uint64_t offset) { return window_.get() + offset; }
  std::uint64_t load(std::uint64_t offset) {
    return HostQueueMemory().load(reinterpret_cast<std::uint64_t*>(at(offset)));
  }
  void await(std::uint64_t offset, std::uint64_t word) {
    const auto end = Clock::now() + 60s;
    while (load(offset) < word) {
      if (Clock::now() > end) throw Error(moeTimeout, "a word did not come");
      std::this_thread::yield();
    }
  }

  // Waits as a step does, and meanwhile does the threads' work.
  void awaitAndHelp(std::uint64_t offset, std::uint64_t word) {
    const auto end = Clock::now() + 60s;
    for (int idle = 0; load(offset) < word;) {
      if (Clock::now() > end) throw Error(moeTimeout, "a word did not come");
      if (helper().advance()) idle = 0;
      helper().pause(++idle);
    }
  }

  std::vector<Outcome> failures() {
    const std::lock_guard lock(mutex_);
    return failures_;
  }
  // The first failure, or moeSuccess if none came in time.
  Outcome awaitFailure(std::chrono::milliseconds patience) {
    const auto end = Clock::now() + patience;
    while (failures().empty() && Clock::now() < end) std::this_thread::sleep_for(1ms);
    return failures().empty() ? Outcome{} : failures().front();
  }

 private:
  static std::uint64_t nanosecondsOf(std::int64_t milliseconds) {
    return static_cast<std::uint64_t>(milliseconds) * 1000000;
  }

  WaitOrders orders_;
  std::unique_ptr<Backend> backend_;
  Memory window_;
  Log log_;
  RemoteView view_{};
  std::mutex mutex_;
  std::vector<Outcome> failures_;
  std::unique_ptr<RemoteTransport> transport_;
};

// A connected group. Any thread may use its ranks.
class Members {
 public:
  explicit Members(int count, const MemberOptions& options = {}) {
    for (int rank = 0; rank < count; ++rank) members_.push_back(std::make_unique<Member>(rank, count, options));
    const std::vector<CardBytes> all = cards();
    expectAllWell(inThreads(count, [&](int rank) { (*this)[rank].connect(all); }));
  }

  Member& operator[](int rank) { return *members_[static_cast<std::size_t>(rank)]; }
  int count() const { return static_cast<int>(members_.size()); }
  std::vector<CardBytes> cards() const {
    std::vector<CardBytes> all;
    for (const auto& member : members_) all.push_back(member->transport().card());
    return all;
  }
  // Runs every rank's part in a thread of its own.
  void run(const std::function<void(Member&, int)>& body) {
    expectAllWell(inThreads(count(), [&](int rank) { body((*this)[rank], rank); }));
  }
  void expectNoFailure() {
    for (const auto& member : members_) expectAllWell(member->failures());
  }

 private:
  std::vector<std::unique_ptr<Member>> members_;
};

// Contents that identify a row.
inline void fillRow(std::uint8_t* row, std::size_t bytes, std::uint32_t seed) {
  for (std::size_t i = 0; i + 4 <= bytes; i += 4) {
    const std::uint32_t value = seed * 2654435761U + static_cast<std::uint32_t>(i);
    std::memcpy(row + i, &value, 4);
  }
}

inline bool rowIs(const std::uint8_t* row, std::size_t bytes, std::uint32_t seed) {
  for (std::size_t i = 0; i + 4 <= bytes; i += 4) {
    const std::uint32_t value = seed * 2654435761U + static_cast<std::uint32_t>(i);
    if (std::memcmp(row + i, &value, 4) != 0) return false;
  }
  return true;
}

inline std::size_t threadCount() {
  std::size_t count = 0;
  for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator("/proc/self/task")) ++count;
  return count;
}

}  // namespace moe::test
