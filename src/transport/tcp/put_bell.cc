#include "transport/tcp/put_bell.h"

#include <poll.h>
#include <sys/eventfd.h>

#include "base/error.h"

namespace moe {

PutBell::PutBell() : event_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  if (!event_) throw systemError("cannot make what a thread is woken by (eventfd)");
}

// Both sides exchange, so the second one sees what the first one did before.
void PutBell::ring() noexcept {
  if (dozes_.exchange(false, std::memory_order_acq_rel)) (void)::eventfd_write(event_.get(), 1);
}

void PutBell::sleep(std::chrono::microseconds most, int other, int another) noexcept {
  pollfd entries[] = {{event_.get(), POLLIN, 0}, {other, POLLIN, 0}, {another, POLLIN, 0}};
  const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(most);
  const timespec limit{seconds.count(), static_cast<long>(std::chrono::nanoseconds(most - seconds).count())};
  (void)::ppoll(entries, std::size(entries), &limit, nullptr);
}

void PutBell::rise() noexcept {
  if (dozes_.exchange(false, std::memory_order_acq_rel)) return;
  eventfd_t rings = 0;  // if its writer comes later, the next sleep is short
  (void)::eventfd_read(event_.get(), &rings);
}

}  // namespace moe
