#include "topology/hwloc_topology.h"

#include <fmt/format.h>

#include <cstdlib>

#include "base/error.h"
#include "topology/dynamic_library.h"

namespace moe::topology {

struct HwlocFunctions {
  explicit HwlocFunctions(const char* name) : library(name) {}

  DynamicLibrary library;
  decltype(&hwloc_get_api_version) apiVersion = nullptr;
  decltype(&hwloc_topology_init) init = nullptr;
  decltype(&hwloc_topology_destroy) destroy = nullptr;
  decltype(&hwloc_topology_set_xml) setXml = nullptr;
  decltype(&hwloc_topology_set_io_types_filter) setIoTypesFilter = nullptr;
  decltype(&hwloc_topology_load) load = nullptr;
  decltype(&hwloc_get_type_depth) typeDepth = nullptr;
  decltype(&hwloc_get_nbobjs_by_depth) countByDepth = nullptr;
  decltype(&hwloc_get_obj_by_depth) objectByDepth = nullptr;
  decltype(&hwloc_bitmap_isincluded) isIncluded = nullptr;
  decltype(&hwloc_bitmap_weight) weight = nullptr;
  decltype(&hwloc_bitmap_first) first = nullptr;
  decltype(&hwloc_bitmap_list_asprintf) listText = nullptr;

  bool findAll() {
    return library.find("hwloc_get_api_version", apiVersion) && library.find("hwloc_topology_init", init) &&
           library.find("hwloc_topology_destroy", destroy) && library.find("hwloc_topology_set_xml", setXml) &&
           library.find("hwloc_topology_set_io_types_filter", setIoTypesFilter) &&
           library.find("hwloc_topology_load", load) && library.find("hwloc_get_type_depth", typeDepth) &&
           library.find("hwloc_get_nbobjs_by_depth", countByDepth) &&
           library.find("hwloc_get_obj_by_depth", objectByDepth) &&
           library.find("hwloc_bitmap_isincluded", isIncluded) && library.find("hwloc_bitmap_weight", weight) &&
           library.find("hwloc_bitmap_first", first) && library.find("hwloc_bitmap_list_asprintf", listText);
  }
};

namespace {

// The layout of hwloc's structs changes with the major version, which is in the upper half.
constexpr unsigned kMajorShift = 16;
static_assert(HWLOC_API_VERSION >> kMajorShift == 2, "kHwlocLibrary is the name of hwloc 2");

}  // namespace

HwlocTopology::HwlocTopology(std::shared_ptr<const HwlocFunctions> functions, const std::filesystem::path& xml)
    : functions_(std::move(functions)) {
  hwloc_topology_t raw = nullptr;
  if (functions_->init(&raw) != 0) throw systemError("hwloc cannot start");
  topology_ = {raw, [keep = functions_](hwloc_topology_t done) { keep->destroy(done); }};
  if (!xml.empty() && functions_->setXml(raw, xml.c_str()) != 0) {
    throw systemError("hwloc cannot read " + xml.string());
  }
  functions_->setIoTypesFilter(raw, HWLOC_TYPE_FILTER_KEEP_IMPORTANT);
  if (functions_->load(raw) != 0) throw systemError("hwloc cannot look at the machine");
}

std::vector<hwloc_obj_t> HwlocTopology::objects(hwloc_obj_type_t type) const {
  const int depth = functions_->typeDepth(topology_.get(), type);
  std::vector<hwloc_obj_t> found;
  if (depth == HWLOC_TYPE_DEPTH_UNKNOWN || depth == HWLOC_TYPE_DEPTH_MULTIPLE) return found;
  const unsigned count = functions_->countByDepth(topology_.get(), depth);
  for (unsigned i = 0; i < count; ++i) found.push_back(functions_->objectByDepth(topology_.get(), depth, i));
  return found;
}

int HwlocTopology::countInside(hwloc_const_bitmap_t set, hwloc_obj_type_t type) const {
  int count = 0;
  for (const hwloc_obj_t object : objects(type)) count += functions_->isIncluded(object->cpuset, set) != 0 ? 1 : 0;
  return count;
}

int HwlocTopology::onlyOne(hwloc_const_bitmap_t set) const {
  return functions_->weight(set) == 1 ? functions_->first(set) : -1;
}

std::string HwlocTopology::listOf(hwloc_const_bitmap_t set) const {
  char* text = nullptr;
  if (functions_->listText(&text, set) < 0) return "";
  const std::unique_ptr<char, decltype(&std::free)> owner(text, &std::free);
  return text;
}

HwlocTopology loadHwloc(const std::filesystem::path& xml, const char* library) {
  auto functions = std::make_shared<HwlocFunctions>(library);
  if (!functions->library.found()) {
    return HwlocTopology(fmt::format("{} cannot be loaded; install hwloc (Debian, Ubuntu: libhwloc15)", library));
  }
  if (!functions->findAll() || functions->apiVersion() >> kMajorShift != HWLOC_API_VERSION >> kMajorShift) {
    return HwlocTopology(fmt::format("{} is not that of hwloc 2", library));
  }
  return {std::move(functions), xml};
}

}  // namespace moe::topology
