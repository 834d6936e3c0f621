#include "transport/rdma/pace.h"

#include <sched.h>
#include <sys/prctl.h>

#include <algorithm>
#include <iterator>
#include <thread>

namespace moe::verbs {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;

constexpr unsigned long kSlackNs = 1000;

}  // namespace

ThreadPlace placeNear(const std::vector<int>& near) {
  if (near.empty()) return {{}, false, "on any processor, as sysfs names none near the adapter"};
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  ThreadPlace place;
  if (::sched_getaffinity(0, sizeof allowed, &allowed) == 0) {
    std::copy_if(near.begin(), near.end(), std::back_inserter(place.cpus),
                 [&](int cpu) { return cpu < CPU_SETSIZE && CPU_ISSET(cpu, &allowed); });
  }
  place.refused = place.cpus.empty();
  place.text = place.refused ? "far from the adapter, as this process may not run on processors " + cpuListText(near)
                             : "on processors " + cpuListText(place.cpus);
  return place;
}

// Sets the timer slack too, because the kernel may lengthen pauses by it.
void runOn(const std::vector<int>& cpus) {
  ::prctl(PR_SET_TIMERSLACK, kSlackNs);
  cpu_set_t wanted;
  CPU_ZERO(&wanted);
  for (const int cpu : cpus) CPU_SET(cpu, &wanted);
  if (!cpus.empty()) ::sched_setaffinity(0, sizeof wanted, &wanted);
}

std::string cpuListText(const std::vector<int>& cpus) {
  std::string text;
  for (std::size_t first = 0, last = 0; first < cpus.size(); first = ++last) {
    while (last + 1 < cpus.size() && cpus[last + 1] == cpus[last] + 1) ++last;
    text += (text.empty() ? "" : ",") + std::to_string(cpus[first]);
    if (last > first) text += "-" + std::to_string(cpus[last]);
  }
  return text;
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
