#include "transport/verbs/rail.h"

#include <algorithm>
#include <cstdlib>

#include "base/error.h"
#include "topology/sysfs.h"
#include "transport/verbs/gpu_driver.h"

namespace moe::verbs {
namespace {

constexpr int kRetriesWithoutEnd = 7;
constexpr const char* kMellanoxDriver = "mlx5_core";

// Not discover(): what it finds out about GPUs beside their places is not needed here and takes time.
topology::Topology lookAround(const std::filesystem::path& sys) {
  topology::Topology found;
  found.nics = topology::findNics(sys);
  if (!found.nics.empty()) found.pci = topology::readPciTree(topology::loadHwloc({}));
  return found;
}

int gpuOf(const RemoteSetup& setup, const topology::PciTree& tree) {
  if (setup.backend.kind() != moeBackendCuda) return -1;
  return topology::indexOfGpu(tree, GpuDriver::load().busIdOf(setup.backend.device()));
}

}  // namespace

int indexInDomain(int rank, const std::vector<int>& peers) {
  return rank - static_cast<int>(std::count_if(peers.begin(), peers.end(), [rank](int peer) { return peer < rank; }));
}

int retriesFor(int wanted, const std::string& driver) {
  return driver == kMellanoxDriver ? wanted : std::min(wanted, kRetriesWithoutEnd - 1);
}

std::vector<int> parseCpuList(const std::string& text) {
  std::vector<int> cpus;
  const char* at = text.c_str();
  while (*at >= '0' && *at <= '9') {
    char* end = nullptr;
    const long first = std::strtol(at, &end, 10);
    const long last = *end == '-' ? std::strtol(end + 1, &end, 10) : first;
    for (long cpu = first; cpu <= last && cpu < 65536; ++cpu) cpus.push_back(static_cast<int>(cpu));
    at = *end == ',' ? end + 1 : end;
  }
  return cpus;
}

topology::RdmaPlan planFor(const topology::Rdma& rdma, int gpu, int indexOnHost) {
  if (rdma.plans.empty()) throw Error(moeUnsupported, "RDMA: " + rdma.nics.reason);
  const auto& ofGpus = rdma.nics.ofGpus;
  if (gpu < 0 || gpu >= static_cast<int>(ofGpus.size()) || ofGpus[static_cast<std::size_t>(gpu)].empty()) {
    return rdma.plans[static_cast<std::size_t>(indexOnHost) % rdma.plans.size()];
  }
  const int rail = ofGpus[static_cast<std::size_t>(gpu)].front().rail;
  const auto plan =
      std::find_if(rdma.plans.begin(), rdma.plans.end(), [rail](const auto& each) { return each.rail == rail; });
  if (plan == rdma.plans.end()) throw Error(moeUnsupported, "RDMA: the adapter of this rank's GPU cannot be used");
  return *plan;
}

Rail chooseRail(const RemoteSetup& setup, const std::filesystem::path& sys) {
  const topology::Topology machine = lookAround(sys);
  const topology::Rdma rdma = topology::planRdma(machine, setup.rdma, setup.timeoutMs);
  Rail rail{planFor(rdma, gpuOf(setup, machine.pci), indexInDomain(setup.rank, setup.peers)), {}};
  const std::filesystem::path device = sys / "class/infiniband" / rail.plan.port.nic / "device";
  rail.plan.retries = retriesFor(rail.plan.retries, topology::resolve(device / "driver").filename().string());
  rail.cpus = parseCpuList(topology::readLine(device / "local_cpulist"));
  return rail;
}

}  // namespace moe::verbs
