#include "transport/rdma/rail.h"

#include <algorithm>
#include <cstdlib>
#include <iterator>

#include "base/error.h"
#include "topology/sysfs.h"
#include "transport/rdma/gpu_driver.h"

namespace moe::verbs {
namespace {

constexpr int kRetriesWithoutEnd = 7;
constexpr const char* kMellanoxDriver = "mlx5_core";

// Does less than discover(), which takes time for more facts about GPUs than their places. hwloc takes even more time,
// and does not survive a lack of memory, so it is used only if there is an adapter.
topology::Topology lookAround(const std::filesystem::path& sys) {
  topology::Topology found;
  found.nics = topology::findNics(sys);
  const auto isRdma = [](const topology::Nic& nic) { return nic.rdma; };
  if (std::any_of(found.nics.begin(), found.nics.end(), isRdma))
    found.pci = topology::readPciTree(topology::loadHwloc({}));
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

std::vector<topology::RdmaPlan> plansFor(const topology::Rdma& rdma, int gpu, int indexOnHost, int each) {
  if (rdma.plans.empty()) throw Error(moeUnsupported, "RDMA: " + rdma.nics.reason);
  const auto& ofGpus = rdma.nics.ofGpus;
  std::vector<topology::RdmaPlan> plans;
  if (gpu < 0 || gpu >= static_cast<int>(ofGpus.size()) || ofGpus[static_cast<std::size_t>(gpu)].empty()) {
    const std::size_t share = std::min(static_cast<std::size_t>(each), rdma.plans.size());
    const std::size_t first = static_cast<std::size_t>(indexOnHost) * share;
    for (std::size_t i = 0; i < share; ++i) plans.push_back(rdma.plans[(first + i) % rdma.plans.size()]);
    return plans;
  }
  for (const topology::NicOfGpu& nic : ofGpus[static_cast<std::size_t>(gpu)]) {
    std::copy_if(rdma.plans.begin(), rdma.plans.end(), std::back_inserter(plans),
                 [&](const auto& plan) { return plan.rail == nic.rail; });
  }
  if (plans.empty()) throw Error(moeUnsupported, "RDMA: the adapter of this rank's GPU cannot be used");
  return plans;
}

int railsFor(int connections, int found) {
  int rails = std::clamp(found, 1, kPutRingsMax);
  while (connections % rails != 0) --rails;
  return rails;
}

int threadsFor(int wanted, int rails) {
  return std::min((wanted + rails - 1) / rails, kPutRingsMax / rails) * rails;
}

std::vector<Rail> chooseRails(const RemoteSetup& setup, const std::filesystem::path& sys) {
  const topology::Topology machine = lookAround(sys);
  if (!machine.pci.reason.empty()) {
    setup.log.write(moeLogWarn, "topo", "the adapters near this rank are not known: {}", machine.pci.reason);
  }
  const topology::Rdma rdma = topology::planRdma(machine, setup.rdma, setup.timeout().count());
  std::vector<Rail> rails;
  for (topology::RdmaPlan& plan : plansFor(rdma, gpuOf(setup, machine.pci), indexInDomain(setup.rank, setup.peers),
                                           std::max(setup.rdma.nicsPerGpu, 1))) {
    const std::filesystem::path device = sys / "class/infiniband" / plan.port.nic / "device";
    plan.retries = retriesFor(plan.retries, topology::resolve(device / "driver").filename().string());
    rails.push_back({std::move(plan), parseCpuList(topology::readLine(device / "local_cpulist"))});
  }
  return rails;
}

}  // namespace moe::verbs
