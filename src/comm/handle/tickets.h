// Tickets of routes. Counts for the host carry the ticket of their call, so that the host waits for those of the latest
// call. docs/internals/protocol.md, "Counts for the host".
#pragma once

#include <algorithm>
#include <cstdint>

namespace moe {

class Tickets {
 public:
  // The ticket of the next call. A captured call may be replayed any number of times, or never: its ticket is 1.
  std::uint32_t next(bool captured) const { return captured ? kCaptured : given_ + 1; }
  // The call with this ticket has been launched.
  void launched(std::uint32_t ticket) noexcept {
    given_ = std::max(given_, ticket);
    expected_ = std::max(expected_, ticket);
  }
  // The ticket to wait for; 0: nothing was launched. A captured call is waited for only if there is no other.
  std::uint32_t expected() const { return expected_; }

 private:
  static constexpr std::uint32_t kCaptured = 1;

  std::uint32_t given_ = kCaptured, expected_ = 0;
};

}  // namespace moe
