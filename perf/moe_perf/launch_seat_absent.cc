// Builds without CUDA launch no kernels.
#include <stdexcept>

#include "perf/moe_perf/launch_seat.h"

namespace moe::perf {

LaunchSeat::LaunchSeat(moeComm_t comm) : comm_(comm) {}
LaunchSeat::~LaunchSeat() = default;

void LaunchSeat::loadTwin() {
  throw std::runtime_error("--twin needs GPUs, and moe_perf was built without CUDA");
}

}  // namespace moe::perf
