#include "transport/verbs/pace.h"

#include <sched.h>
#include <sys/prctl.h>

#include <thread>

namespace moe::verbs {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;

constexpr unsigned long kSlackNs = 1000;

}  // namespace

// A thread that cannot be moved stays where it is. The kernel may make rests longer by the slack.
void runNear(const std::vector<int>& cpus) {
  ::prctl(PR_SET_TIMERSLACK, kSlackNs);
  cpu_set_t allowed;
  cpu_set_t wanted;
  CPU_ZERO(&wanted);
  if (::sched_getaffinity(0, sizeof allowed, &allowed) != 0) return;
  for (const int cpu : cpus) {
    if (cpu < CPU_SETSIZE && CPU_ISSET(cpu, &allowed)) CPU_SET(cpu, &wanted);
  }
  if (CPU_COUNT(&wanted) > 0) ::sched_setaffinity(0, sizeof wanted, &wanted);
}

microseconds restAfter(std::chrono::nanoseconds idle) {
  if (idle < microseconds(50)) return microseconds(0);
  if (idle < milliseconds(50)) return microseconds(20);
  if (idle < milliseconds(1000)) return microseconds(100);
  return microseconds(500);
}

void rest(microseconds pause) {
  if (pause.count() == 0) {
    std::this_thread::yield();
  } else {
    std::this_thread::sleep_for(pause);
  }
}

}  // namespace moe::verbs
