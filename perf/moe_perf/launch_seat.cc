#include "perf/moe_perf/launch_seat.h"

#include <fmt/format.h>

#include <stdexcept>

#include "backend/cuda_raii.h"
#include "backend/kernel_launch.h"
#include "comm/comm.h"
#include "perf/twin/twin_ht_dispatch.h"

namespace moe::perf {
namespace {

Comm& commOf(moeComm_t comm) {
  return *reinterpret_cast<Comm*>(comm);
}

bool isCuda(moeComm_t comm) {
  return commOf(comm).backend().kind() == moeBackendCuda;
}

}  // namespace

LaunchSeat::LaunchSeat(moeComm_t comm) : comm_(comm) {
  if (!isCuda(comm)) return;
  setKernelLaunch(commOf(comm).backend(),
                  [this](Step step, const StepParams& params, const KernelShape& shape, cudaStream_t stream) {
                    if (step != Step::route)
                      (isCombine(step) ? multiprocessors_.combine : multiprocessors_.dispatch) = shape.blocks;
                    return (twin_ ? launchTwin : launchKernel)(step, params, shape, stream);
                  });
}

LaunchSeat::~LaunchSeat() {
  if (isCuda(comm_)) setKernelLaunch(commOf(comm_).backend(), launchKernel);
}

void LaunchSeat::loadTwin() {
  const CommView& view = commOf(comm_).view();
  if (!isCuda(comm_)) throw std::runtime_error("--twin needs GPUs, but the backend is host");
  if (!commOf(comm_).backend().bulkCopies()) {
    throw std::runtime_error("--twin is made of bulk copies: it needs GPUs that have them, and MOECOMM_BULK not off");
  }
  if (view.split()) throw std::runtime_error("--twin serves one domain, and these ranks are in several");
  if (view.nranks > kTwinRanksMax) {
    throw std::runtime_error(fmt::format("--twin serves up to {} ranks, there are {}", kTwinRanksMax, view.nranks));
  }
  checkCuda(moe::perf::loadTwin(), "cannot load the twin");
}

}  // namespace moe::perf
