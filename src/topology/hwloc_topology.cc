#include "topology/hwloc_topology.h"

#include "base/error.h"

namespace moe::topology {

HwlocTopology loadHwloc(const std::filesystem::path& xml) {
  hwloc_topology_t raw = nullptr;
  if (hwloc_topology_init(&raw) != 0) throw systemError("hwloc cannot start");
  HwlocTopology topology(raw);
  if (!xml.empty() && hwloc_topology_set_xml(raw, xml.c_str()) != 0) {
    throw systemError("hwloc cannot read " + xml.string());
  }
  hwloc_topology_set_io_types_filter(raw, HWLOC_TYPE_FILTER_KEEP_IMPORTANT);
  if (hwloc_topology_load(raw) != 0) throw systemError("hwloc cannot look at the machine");
  return topology;
}

}  // namespace moe::topology
