// The work that waiting steps of a CPU do for the threads of a TCP transport: they send and receive themselves. On a
// processor of its own, a step polls, because a message arrives sooner than a thread wakes up. Where others want the
// processor, it sleeps until a socket has something.
#pragma once

#include <memory>
#include <vector>

#include "device/queue/put_helper.h"
#include "transport/tcp/ring.h"

namespace moe {

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
