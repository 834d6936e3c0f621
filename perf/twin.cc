#include "twin.h"

#include <fmt/format.h>

#include <stdexcept>

#include "backend/cuda_raii.h"
#include "backend/kernel_launch.h"
#include "comm/comm.h"
#include "twin_ht_dispatch.h"

namespace moe::perf {
namespace {

Backend& backendOf(moeComm_t comm) {
  return reinterpret_cast<Comm*>(comm)->backend();
}

}  // namespace

Twin::Twin(moeComm_t comm) : comm_(comm) {
  const CommView& view = reinterpret_cast<Comm*>(comm)->view();
  if (backendOf(comm).kind() != moeBackendCuda) throw std::runtime_error("--twin needs GPUs, but the backend is host");
  if (!backendOf(comm).bulkCopies()) {
    throw std::runtime_error("--twin is made of bulk copies: it needs GPUs that have them, and MOECOMM_BULK not off");
  }
  if (view.split()) throw std::runtime_error("--twin serves one domain, and these ranks are in several");
  if (view.nranks > kTwinRanksMax) {
    throw std::runtime_error(fmt::format("--twin serves up to {} ranks, there are {}", kTwinRanksMax, view.nranks));
  }
  checkCuda(loadTwin(), "cannot load the twin");
}

void Twin::use(bool twin) {
  setKernelLaunch(backendOf(comm_), twin ? launchTwin : launchKernel);
}

}  // namespace moe::perf
