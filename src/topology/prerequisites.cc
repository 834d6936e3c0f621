#include "topology/prerequisites.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdlib>
#include <sstream>

#include "topology/dynamic_library.h"
#include "topology/sysfs.h"

namespace moe::topology {
namespace {

constexpr int kLockCapability = 14;            // CAP_IPC_LOCK
constexpr std::array kDmaBufKernel = {5, 12};  // the first whose RDMA drivers take GPU memory as a dma-buf

Prerequisite present(const char* name, std::string found) {
  return {name, Presence::kPresent, std::move(found), ""};
}
Prerequisite missing(const char* name, std::string found, std::string advice) {
  return {name, Presence::kMissing, std::move(found), std::move(advice)};
}
Prerequisite unknown(const char* name, std::string why) {
  return {name, Presence::kUnknown, std::move(why), ""};
}

Prerequisite checkLibrary(const SystemPlaces& places) {
  constexpr const char* kName = "verbs library";
  if (DynamicLibrary(places.verbsLibrary.c_str()).found()) return present(kName, places.verbsLibrary);
  return missing(kName, places.verbsLibrary + " cannot be loaded",
                 "install rdma-core (Debian, Ubuntu: libibverbs1 and ibverbs-providers)");
}

Prerequisite checkNodes(const SystemPlaces& places) {
  constexpr const char* kName = "device nodes";
  const std::filesystem::path directory = places.dev / "infiniband";
  std::vector<std::string> nodes;
  for (const std::string& node : listNames(directory)) {
    if (node.rfind("uverbs", 0) != 0) continue;
    nodes.push_back(node);
    if (::access((directory / node).c_str(), R_OK | W_OK) == 0) continue;
    return missing(kName, fmt::format("{} cannot be read and written", (directory / node).string()),
                   "give this user read and write permission");
  }
  if (!nodes.empty()) return present(kName, fmt::format("{}", fmt::join(nodes, ", ")));
  return missing(kName, fmt::format("there is no {}/uverbs*", directory.string()),
                 "load ib_uverbs and the adapter's driver (mlx5_ib); give a container --device=/dev/infiniband");
}

bool mayLockAnything(const SystemPlaces& places) {
  const std::string mask = valueIn(places.proc / "self/status", "CapEff:");
  return (std::strtoull(mask.c_str(), nullptr, 16) >> kLockCapability & 1) != 0;
}

Prerequisite checkLockedMemory(const SystemPlaces& places) {
  constexpr const char* kName = "locked memory";
  const std::string limits = valueIn(places.proc / "self/limits", "Max locked memory");
  const std::string limit = limits.substr(0, limits.find(' '));
  if (limit.empty()) return unknown(kName, fmt::format("{} is not shown", (places.proc / "self/limits").string()));
  if (limit == "unlimited") return present(kName, "unlimited");
  if (mayLockAnything(places)) return present(kName, "limited, but this process has CAP_IPC_LOCK");
  return missing(kName, fmt::format("at most {} bytes", limit),
                 "ulimit -l unlimited (limits.conf: memlock; systemd: LimitMEMLOCK=infinity; containers: --ulimit "
                 "memlock=-1)");
}

bool kernelTakesDmaBuf(const SystemPlaces& places) {
  std::istringstream release(readLine(places.proc / "sys/kernel/osrelease"));
  std::array<int, 2> version{};
  char dot = 0;
  release >> version[0] >> dot >> version[1];
  return version >= kDmaBufKernel;
}

// An adapter reaches GPU memory by the driver's peer-memory module or, with newer kernels, by a dma-buf.
Prerequisite checkGpuMemory(const Topology& topology, const SystemPlaces& places) {
  constexpr const char* kName = "GPU memory for adapters";
  for (const char* module : {"nvidia_peermem", "nv_peer_mem"}) {
    if (std::filesystem::exists(places.sys / "module" / module)) return present(kName, module);
  }
  const auto& gpus = topology.gpus.gpus;
  if (gpus.empty()) return unknown(kName, topology.gpus.reason);
  const bool dmaBuf = std::all_of(gpus.begin(), gpus.end(), [](const Gpu& gpu) { return gpu.dmaBuf; });
  if (dmaBuf && kernelTakesDmaBuf(places)) return present(kName, "dma-buf");
  return missing(kName,
                 dmaBuf ? "no nvidia_peermem, and the kernel is too old for dma-buf"
                        : "no nvidia_peermem, and the driver offers no dma-buf",
                 "modprobe nvidia_peermem, or use NVIDIA's open kernel modules with Linux 5.12 or later");
}

// A flag says that the rows before it are there: so a GPU must not see an adapter's writes in another order.
Prerequisite checkWriteOrder(const Topology& topology) {
  constexpr const char* kName = "order of adapters' writes";
  const auto& gpus = topology.gpus.gpus;
  if (gpus.empty()) return unknown(kName, topology.gpus.reason);
  const auto other = std::find_if(gpus.begin(), gpus.end(), [](const Gpu& gpu) { return !gpu.ordersWrites; });
  if (other == gpus.end()) return present(kName, "the GPUs keep it");
  return missing(kName, fmt::format("GPU {} does not keep it", other - gpus.begin()),
                 "RDMA to this GPU's memory is refused; use MOECOMM_TRANSPORT=tcp");
}

Prerequisite checkDoorbells(const SystemPlaces& places) {
  constexpr const char* kName = "doorbells by the GPU";
  const std::filesystem::path file = places.proc / "driver/nvidia/params";
  if (!std::filesystem::exists(file)) return unknown(kName, fmt::format("{} is not shown", file.string()));
  const std::string words = valueIn(file, "RegistryDwords:");
  if (words.find("PeerMappingOverride=1") != std::string::npos) return present(kName, "PeerMappingOverride=1");
  return missing(kName, "the NVIDIA driver's PeerMappingOverride is not set",
                 "options nvidia NVreg_RegistryDwords=\"PeerMappingOverride=1;\" in /etc/modprobe.d, then load the "
                 "driver anew");
}

Prerequisite checkPorts(const Topology& topology) {
  constexpr const char* kName = "active ports";
  std::string active, others;
  for (const Nic& nic : topology.nics) {
    for (const RdmaPort& port : nic.ports) {
      const std::string name = textOf(NicName{nic.name, port.number});
      if (port.state == "ACTIVE") active += (active.empty() ? "" : ", ") + name;
      if (port.state != "ACTIVE") others += fmt::format("{}{} is {}", others.empty() ? "" : ", ", name, port.state);
    }
  }
  if (!active.empty()) return present(kName, active + (others.empty() ? "" : "; " + others));
  if (others.empty()) {
    return missing(kName, "this machine shows no RDMA adapter",
                   "if it has one, load its driver (mlx5_ib); give a virtual machine or container the adapter");
  }
  return missing(kName, others,
                 "check cables and switch; InfiniBand needs a subnet manager, RoCE an interface that is up");
}

Prerequisite checkAddresses(const Rdma& rdma) {
  constexpr const char* kName = "addresses";
  if (rdma.plans.empty()) return unknown(kName, rdma.nics.reason);
  std::string found;
  for (const RdmaPlan& plan : rdma.plans) {
    const std::string apart = whyApart(rdma.plans[0].address, plan.address);
    if (!apart.empty()) return missing(kName, "adapters cannot meet: " + apart, "give all ports addresses of one kind");
    found += fmt::format("{}{}: {}", found.empty() ? "" : ", ", textOf(plan.port), textOf(plan.address.gid));
  }
  return present(kName, found);
}

Prerequisite checkDistance(const Topology& topology, const Rdma& rdma) {
  constexpr const char* kName = "adapters near the GPUs";
  if (topology.pci.gpus.empty()) return unknown(kName, "no GPU is shown");
  if (!rdma.nics.reason.empty()) return unknown(kName, rdma.nics.reason);
  Distance farthest = Distance::kSwitch;
  std::string far;
  for (std::size_t gpu = 0; gpu < rdma.nics.ofGpus.size(); ++gpu) {
    for (const NicOfGpu& nic : rdma.nics.ofGpus[gpu]) {
      farthest = std::max(farthest, nic.distance);
      if (nic.distance <= Distance::kHostBridge) continue;
      const std::string name = textOf(rdma.nics.rails[static_cast<std::size_t>(nic.rail)].name);
      far += fmt::format("{}GPU {} and {}: {}", far.empty() ? "" : "; ", gpu, name, nameOf(nic.distance));
    }
  }
  if (far.empty()) return present(kName, nameOf(farthest));
  return missing(kName, far, "rows cross the processor: slower, but correct; see docs/nics.md");
}

}  // namespace

const char* nameOf(Presence presence) {
  if (presence == Presence::kPresent) return "present";
  return presence == Presence::kMissing ? "missing" : "not checkable here";
}

std::vector<Prerequisite> checkPrerequisites(const Topology& topology, const Rdma& rdma, const SystemPlaces& places) {
  return {
      checkLibrary(places),         checkNodes(places),     checkLockedMemory(places), checkGpuMemory(topology, places),
      checkWriteOrder(topology),    checkDoorbells(places), checkPorts(topology),      checkAddresses(rdma),
      checkDistance(topology, rdma)};
}

}  // namespace moe::topology
