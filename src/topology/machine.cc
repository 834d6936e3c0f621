#include "topology/machine.h"

#include <cstdlib>
#include <memory>

namespace moe::topology {
namespace {

int countInside(hwloc_topology_t topology, hwloc_const_cpuset_t set, hwloc_obj_type_t type) {
  const int count = hwloc_get_nbobjs_inside_cpuset_by_type(topology, set, type);
  return count < 0 ? 0 : count;
}

std::string listOf(hwloc_const_cpuset_t set) {
  char* text = nullptr;
  if (hwloc_bitmap_list_asprintf(&text, set) < 0) return "";
  const std::unique_ptr<char, decltype(&std::free)> owner(text, &std::free);
  return text;
}

}  // namespace

Machine describeMachine(const HwlocTopology& topology) {
  const hwloc_topology_t raw = topology.get();
  const hwloc_obj_t root = hwloc_get_root_obj(raw);
  Machine machine;
  const hwloc_obj_t package = hwloc_get_obj_by_type(raw, HWLOC_OBJ_PACKAGE, 0);
  const char* model = package == nullptr ? nullptr : hwloc_obj_get_info_by_name(package, "CPUModel");
  machine.processor = model == nullptr ? "" : model;
  machine.cores = countInside(raw, root->cpuset, HWLOC_OBJ_CORE);
  machine.threads = countInside(raw, root->cpuset, HWLOC_OBJ_PU);
  for (hwloc_obj_t node = nullptr; (node = hwloc_get_next_obj_by_type(raw, HWLOC_OBJ_NUMANODE, node)) != nullptr;) {
    machine.nodes.push_back({static_cast<int>(node->os_index), node->attr->numanode.local_memory,
                             countInside(raw, node->cpuset, HWLOC_OBJ_CORE),
                             countInside(raw, node->cpuset, HWLOC_OBJ_PU), listOf(node->cpuset)});
  }
  return machine;
}

}  // namespace moe::topology
