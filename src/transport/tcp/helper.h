// The work that waiting steps of a CPU do for the threads of a TCP transport: they send and receive themselves. On a
// processor of its own, a step polls, because a message arrives sooner than a thread wakes up. Where others want the
// processor, it sleeps until a socket has something. This file also has the threads of a ring, which the helper helps.
#pragma once

#include <memory>
#include <vector>

#include "device/queue/put_helper.h"
#include "transport/tcp/put_carrier.h"
#include "transport/tcp/receiver.h"
#include "transport/tcp/sender.h"
#include "transport/transports.h"

namespace moe {

// The threads of the peers that one ring of a TCP transport serves.
struct TcpRing {
  TcpRing(TcpGroup& group, const TcpOptions& options)
      : sender(group, options.backlogMax),
        receiver(group, sender),
        carrier(
            group.setup().backend, options.ringSlots, sender,
            [&group](moeResult_t result, const std::string& sentence) { group.fail(result, sentence); },
            group.setup().lost) {
    sender.setWake([this] { carrier.wake(); });
  }
  // Answers that the receiver has requested are still sent.
  ~TcpRing() {
    receiver.stop();
    carrier.stop();
  }

  TcpSender sender;
  TcpReceiver receiver;
  PutCarrier carrier;
};

class TcpHelper {
 public:
  // `rings` outlive this object and do not change.
  explicit TcpHelper(const std::vector<std::unique_ptr<TcpRing>>& rings);
  TcpHelper(const TcpHelper&) = delete;
  TcpHelper& operator=(const TcpHelper&) = delete;

  const PutHelper* forSteps() const { return &table_; }

 private:
  // As in put_helper.h.
  bool advance() noexcept;
  void flush() noexcept;
  void pause(int times) noexcept;
  void leave(bool soon) noexcept;
  void wake() noexcept;

  bool spins(int times) noexcept;
  void sleep(int times) const noexcept;

  const std::vector<std::unique_ptr<TcpRing>>& rings_;
  const PutHelper table_;
  std::atomic<int> crowded_ = 0;  // waits for which the processor counts as wanted by others
};

}  // namespace moe
