// One rank's end of the transport between domains, without a communicator: a window in host memory, puts to the ranks
// of other domains, and signals, which are words that count up. Used by moe_perf --transport-test.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "comm/config/config.h"
#include "perf/moe_perf/group.h"
#include "perf/moe_perf/options.h"
#include "transport/remote.h"

namespace moe::perf {

class TransportLink {
 public:
  // Collective. Makes the transport that --transport and the environment ask for, and connects it. Domains have
  // --domain-size ranks, or one rank each. Throws std::runtime_error.
  TransportLink(const Options& options, Group& group, std::size_t dataBytes);
  TransportLink(const TransportLink&) = delete;
  TransportLink& operator=(const TransportLink&) = delete;

  bool isRemote(int peer) const { return peer / config_.domainSize != rank_ / config_.domainSize; }
  int domainSize() const { return config_.domainSize; }
  std::string transportName() const { return nameOfTransport(transport_->kind()); }

  // An offset in the first dataBytes of the window. All functions except at() throw std::runtime_error if the transport
  // fails or time runs out.
  std::uint8_t* at(std::uint64_t offset) { return window_.get() + offset; }
  void put(int to, std::uint64_t target, std::uint64_t source, std::uint32_t bytes);
  // The peer's awaitSignal returns once for each signal, when all puts before it have arrived.
  void signal(int to);
  void awaitSignal(int from);

  // Collective. Call it when no rank sends any more.
  void close(Group& group);

 private:
  RemoteSetup setup();
  void post(const Put& put);
  void carry();
  std::uint64_t signalOf(int from) const { return signals_ + static_cast<std::uint64_t>(from) * sizeof(std::uint64_t); }
  [[noreturn]] void giveUp(const std::string& why);

  int rank_, nranks_;
  Config config_;
  std::size_t windowBytes_;
  std::uint64_t signals_;  // offset of a word for each rank; the words by which transports announce departures follow
  std::unique_ptr<Backend> backend_;
  Memory window_;
  Log log_;
  std::vector<std::uint64_t> sent_, seen_;  // signals, by peer
  WaitOrders orders_;                       // abort is not zero: failure_ says why
  std::mutex mutex_;
  std::string failure_;
  bootstrap::Key key_{};  // rank 0's key, which all ranks use
  RemoteView view_{};
  std::uint64_t posted_ = 0;                    // since the last carry
  std::unique_ptr<RemoteTransport> transport_;  // destroyed first, because its threads use the others
};

}  // namespace moe::perf
