#include "topology/topology.h"

#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <set>
#include <utility>

#include "topology/sysfs.h"

namespace moe::topology {
namespace {

// "4: ACTIVE" -> "ACTIVE"
std::string afterColon(const std::string& text) {
  const std::size_t colon = text.find(": ");
  return colon == std::string::npos ? text : text.substr(colon + 2);
}

// A PCI device's directory is named by its address, "0000:17:00.0".
std::string busIdOf(const std::filesystem::path& device) {
  const std::string name = device.filename().string();
  return name.size() == 12 && name[4] == ':' && name[7] == ':' && name[10] == '.' ? name : "";
}

void describeInterface(const std::filesystem::path& interface, Nic& nic) {
  nic.speedMbps = std::max(nic.speedMbps, readNumber(interface / "speed").value_or(-1));
  nic.up = nic.up || readLine(interface / "operstate") == "up";
}

Nic describeRdma(const std::filesystem::path& sys, const std::string& name) {
  Nic nic;
  const std::filesystem::path directory = sys / "class/infiniband" / name;
  nic.name = name;
  nic.rdma = true;
  nic.device = resolve(directory / "device");
  nic.busId = busIdOf(nic.device);
  nic.numaNode = numaNodeOf(nic.device);
  for (const std::string& port : listNames(directory / "ports")) {
    const std::filesystem::path files = directory / "ports" / port;
    nic.ports.push_back({std::atoi(port.c_str()), afterColon(readLine(files / "state")), readLine(files / "rate"),
                         readLine(files / "link_layer"), readGidTable(sys, files)});
    nic.up = nic.up || nic.ports.back().state == "ACTIVE";
  }
  nic.interfaces = listNames(nic.device / "net");
  for (const std::string& interface : nic.interfaces) describeInterface(sys / "class/net" / interface, nic);
  return nic;
}

Nic describeEthernet(const std::filesystem::path& sys, const std::string& name) {
  Nic nic;
  nic.name = name;
  nic.interfaces = {name};
  nic.device = resolve(sys / "class/net" / name / "device");
  nic.busId = busIdOf(nic.device);
  nic.numaNode = numaNodeOf(nic.device);
  describeInterface(sys / "class/net" / name, nic);
  return nic;
}

// hwloc's name for a field that /proc/cpuinfo has too.
std::string modelOf(const HwlocTopology& topology) {
  for (const hwloc_obj_t package : topology.objects(HWLOC_OBJ_PACKAGE)) {
    for (unsigned i = 0; i < package->infos_count; ++i) {
      if (std::strcmp(package->infos[i].name, "CPUModel") == 0) return package->infos[i].value;
    }
  }
  return "";
}

Machine withoutHwloc(std::string reason) {
  Machine machine;
  machine.processor = processorModel();
  machine.threads = static_cast<int>(::sysconf(_SC_NPROCESSORS_ONLN));
  machine.reason = std::move(reason);
  return machine;
}

}  // namespace

std::vector<Nic> findNics(const std::filesystem::path& sys) {
  std::vector<Nic> nics;
  std::set<std::string> covered;
  for (const std::string& name : listNames(sys / "class/infiniband")) {
    nics.push_back(describeRdma(sys, name));
    covered.insert(nics.back().interfaces.begin(), nics.back().interfaces.end());
  }
  for (const std::string& name : listNames(sys / "class/net")) {
    const bool physical = !resolve(sys / "class/net" / name / "device").empty();
    if (physical && covered.count(name) == 0) nics.push_back(describeEthernet(sys, name));
  }
  return nics;
}

std::string processorModel() {
  const std::string value = valueIn("/proc/cpuinfo", "model name");
  const std::size_t text = value.find_first_not_of(": \t");
  return text == std::string::npos ? "" : value.substr(text);
}

Machine describeMachine(const HwlocTopology& topology) {
  if (!topology.reason().empty()) return withoutHwloc(topology.reason());
  Machine machine;
  machine.processor = modelOf(topology);
  machine.cores = static_cast<int>(topology.objects(HWLOC_OBJ_CORE).size());
  machine.threads = static_cast<int>(topology.objects(HWLOC_OBJ_PU).size());
  for (const hwloc_obj_t node : topology.objects(HWLOC_OBJ_NUMANODE)) {
    machine.nodes.push_back({static_cast<int>(node->os_index), node->attr->numanode.local_memory,
                             topology.countInside(node->cpuset, HWLOC_OBJ_CORE),
                             topology.countInside(node->cpuset, HWLOC_OBJ_PU), topology.listOf(node->cpuset)});
  }
  return machine;
}

Topology discover(const std::filesystem::path& sys) {
  const HwlocTopology hwloc = loadHwloc();
  return {describeMachine(hwloc), findGpus(sys), findNics(sys), readPciTree(hwloc)};
}

std::string transportBetween(const GpuInventory& gpus, std::size_t from, std::size_t to) {
  if (from == to) return "cuda-ipc";  // ranks that share a GPU
  const bool both = gpus.links[from][to].peerAccess && gpus.links[to][from].peerAccess;
  return both ? "cuda-ipc" : "none: no peer access";
}

}  // namespace moe::topology
