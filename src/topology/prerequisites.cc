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
constexpr std::array kDmaBufKernel = {5, 12};  // the first version whose RDMA drivers take GPU memory as a dma-buf

Prerequisite present(const char* name, std::string found) {
  return {name, Presence::present, std::move(found), ""};
}
Prerequisite missing(const char* name, std::string found, std::string advice) {
  return {name, Presence::missing, std::move(found), std::move(advice)};
}
Prerequisite unknown(const char* name, std::string why, std::string advice = "") {
  return {name, Presence::unknown, std::move(why), std::move(advice)};
}

Prerequisite checkLibrary(const SystemPlaces& places) {
  constexpr const char* kName = "verbs library";
  if (DynamicLibrary(places.verbsLibrary.c_str()).found()) return present(kName, places.verbsLibrary);
  return missing(kName, places.verbsLibrary + " cannot be loaded",
                 "install rdma-core (Debian, Ubuntu: libibverbs1 and ibverbs-providers)");
}

Prerequisite checkMlx5Library(const SystemPlaces& places) {
  constexpr const char* kName = "mlx5 library";
  if (DynamicLibrary(places.mlx5Library.c_str()).found()) return present(kName, places.mlx5Library);
  return missing(kName, places.mlx5Library + " cannot be loaded", "install it (Debian, Ubuntu: ibverbs-providers)");
}

// The adapters in use, as sysfs shows them.
std::vector<const Nic*> usedNics(const Topology& topology, const Rdma& rdma) {
  std::vector<const Nic*> used;
  for (const Nic& nic : topology.nics) {
    const bool has = std::any_of(rdma.plans.begin(), rdma.plans.end(),
                                 [&](const RdmaPlan& plan) { return plan.port.nic == nic.name; });
    if (has) used.push_back(&nic);
  }
  return used;
}

Prerequisite checkMlx5Adapters(const Topology& topology, const Rdma& rdma) {
  constexpr const char* kName = "mlx5 adapters";
  if (rdma.plans.empty()) return unknown(kName, rdma.nics.reason);
  std::string good, others;
  for (const Nic* nic : usedNics(topology, rdma)) {
    const std::string driver = resolve(nic->device / "driver").filename().string();
    if (driver == "mlx5_core") good += (good.empty() ? "" : ", ") + nic->name;
    if (driver == "mlx5_core") continue;
    others += fmt::format("{}{} has {}", others.empty() ? "" : ", ", nic->name,
                          driver.empty() ? "no visible driver" : "the driver " + driver);
  }
  if (others.empty()) return present(kName, good);
  return missing(kName, others,
                 "only ConnectX-4 and later have queues that a GPU can post to; MOECOMM_NICS names those to be used");
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

// An adapter reaches GPU memory through the driver's peer-memory module or, with newer kernels, as a dma-buf.
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

// A flag says that the rows before it have arrived, so a GPU must see an adapter's writes in their order.
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

// Other libraries require it together with PeerMappingOverride. This library does not use it.
Prerequisite checkStreamOperations(const SystemPlaces& places) {
  constexpr const char* kName = "stream memory operations";
  const std::filesystem::path file = places.proc / "driver/nvidia/params";
  if (!std::filesystem::exists(file)) return unknown(kName, fmt::format("{} is not shown", file.string()));
  const std::string value = valueIn(file, "EnableStreamMemOPs:");
  if (value.empty()) return unknown(kName, "this NVIDIA driver does not show EnableStreamMemOPs");
  if (value != "0") return present(kName, "EnableStreamMemOPs: " + value);
  return missing(
      kName, "EnableStreamMemOPs: 0",
      "only if the GPU cannot ring with PeerMappingOverride alone: options nvidia NVreg_EnableStreamMemOPs=1 "
      "in /etc/modprobe.d, then load the driver anew");
}

// The kernel reports for each device whether its accesses are translated. A virtual machine does not see its host's
// tables.
Prerequisite checkIommu(const Topology& topology, const Rdma& rdma) {
  constexpr const char* kName = "IOMMU";
  if (rdma.plans.empty()) return unknown(kName, rdma.nics.reason);
  std::string translated, passed;
  for (const Nic* nic : usedNics(topology, rdma)) {
    const std::string type = readLine(nic->device / "iommu_group/type");
    std::string& list = type.rfind("DMA", 0) == 0 ? translated : passed;
    list += fmt::format("{}{}: {}", list.empty() ? "" : ", ", nic->name, type.empty() ? "none" : type);
  }
  if (translated.empty()) return present(kName, "out of the way (" + passed + ")");
  return missing(kName, "translates what adapters write (" + translated + ")",
                 "iommu=pt on the kernel's command line, or off in the firmware: else traffic between adapter and GPU "
                 "goes through the processor, or fails");
}

Prerequisite checkAcs(const Rdma& rdma) {
  constexpr const char* kName = "ACS";
  if (rdma.plans.empty()) return unknown(kName, rdma.nics.reason);
  return unknown(
      kName, "only root can read the registers of PCIe bridges",
      "as root: lspci -vvv | grep ACSCtl; where a bridge between GPU and adapter shows SrcValid+, disable ACS "
      "in the firmware or by setpci, else their traffic goes through the processor");
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
  Distance farthest = Distance::pcieSwitch;
  std::string far;
  for (std::size_t gpu = 0; gpu < rdma.nics.ofGpus.size(); ++gpu) {
    for (const NicOfGpu& nic : rdma.nics.ofGpus[gpu]) {
      farthest = std::max(farthest, nic.distance);
      if (nic.distance <= Distance::hostBridge) continue;
      const std::string name = textOf(rdma.nics.rails[static_cast<std::size_t>(nic.rail)].name);
      far += fmt::format("{}GPU {} and {}: {}", far.empty() ? "" : "; ", gpu, name, nameOf(nic.distance));
    }
  }
  if (far.empty()) return present(kName, nameOf(farthest));
  return missing(kName, far, "rows cross the processor: slower, but correct; see docs/reference/nics.md");
}

}  // namespace

const char* nameOf(Presence presence) {
  if (presence == Presence::present) return "present";
  return presence == Presence::missing ? "missing" : "not checkable here";
}

std::vector<Prerequisite> checkPrerequisites(const Topology& topology, const Rdma& rdma, const SystemPlaces& places) {
  std::vector<Prerequisite> all;
  const auto add = [&](NeededFor neededFor, Prerequisite one) {
    one.neededFor = neededFor;
    all.push_back(std::move(one));
  };
  add(NeededFor::verbs, checkPorts(topology));
  add(NeededFor::verbs, checkLibrary(places));
  add(NeededFor::verbs, checkNodes(places));
  add(NeededFor::verbs, checkLockedMemory(places));
  add(NeededFor::verbs, checkAddresses(rdma));
  add(NeededFor::gpuMemory, checkGpuMemory(topology, places));
  add(NeededFor::gpuMemory, checkWriteOrder(topology));
  add(NeededFor::ibgda, checkMlx5Library(places));
  add(NeededFor::ibgda, checkMlx5Adapters(topology, rdma));
  add(NeededFor::gpuRings, checkDoorbells(places));
  add(NeededFor::speed, checkStreamOperations(places));
  add(NeededFor::speed, checkIommu(topology, rdma));
  add(NeededFor::speed, checkAcs(rdma));
  add(NeededFor::speed, checkDistance(topology, rdma));
  return all;
}

std::string transportBetweenHosts(const std::vector<Prerequisite>& prerequisites, bool hasGpu) {
  // The first missing one decides, because they are ordered by what needs them.
  const Prerequisite* lacks = nullptr;
  std::string unchecked;
  for (const Prerequisite& one : prerequisites) {
    if (one.neededFor == NeededFor::speed || (!hasGpu && one.neededFor != NeededFor::verbs)) continue;
    if (one.presence == Presence::missing && lacks == nullptr) lacks = &one;
    if (one.presence == Presence::unknown) unchecked += (unchecked.empty() ? "" : ", ") + one.name;
  }
  const std::string why = lacks == nullptr ? "" : lacks->name + ": " + lacks->found;
  if (lacks != nullptr && lacks->neededFor <= NeededFor::gpuMemory) return "TCP, not RDMA: " + why;
  const std::string unsure = unchecked.empty() ? "" : fmt::format(" (if these are there: {})", unchecked);
  if (!hasGpu) return "verbs, not IBGDA: there is no GPU, and on the host a thread is as good" + unsure;
  if (lacks == nullptr) return "IBGDA, the GPU rings" + unsure;
  if (lacks->neededFor == NeededFor::ibgda) return "verbs, not IBGDA: " + why + unsure;
  return "IBGDA, but a thread rings for the GPU: " + why + unsure;
}

}  // namespace moe::topology
