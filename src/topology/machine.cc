#include "topology/machine.h"

#include <unistd.h>

#include <cstring>
#include <utility>

#include "topology/sysfs.h"

namespace moe::topology {
namespace {

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

}  // namespace moe::topology
