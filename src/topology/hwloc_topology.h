// A machine as hwloc describes it: this one, or one from an XML file. topology.h and pci_tree.h read it. hwloc is
// loaded at run time. Without it only the reason is known. This file uses only types of hwloc's header, because its
// inline functions would need the library.
#pragma once

#include <hwloc.h>

#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace moe::topology {

struct HwlocFunctions;

// The library of hwloc 2, to which the types of its header belong.
inline constexpr const char* kHwlocLibrary = "libhwloc.so.15";

class HwlocTopology {
 public:
  // An unknown machine, and the reason.
  explicit HwlocTopology(std::string reason) : reason_(std::move(reason)) {}
  HwlocTopology(std::shared_ptr<const HwlocFunctions> functions, const std::filesystem::path& xml);

  // Empty if the machine is known.
  const std::string& reason() const { return reason_; }

  // In hwloc's order. This function and all that follow need a known machine.
  std::vector<hwloc_obj_t> objects(hwloc_obj_type_t type) const;
  // Counts objects of a type whose processors all lie within `set`.
  int countInside(hwloc_const_bitmap_t set, hwloc_obj_type_t type) const;

  // The only number in a set, or -1 if there are none or several.
  int onlyOne(hwloc_const_bitmap_t set) const;
  // "0-15,32-47"
  std::string listOf(hwloc_const_bitmap_t set) const;

 private:
  std::string reason_;
  std::shared_ptr<const HwlocFunctions> functions_;
  std::shared_ptr<hwloc_topology> topology_;
};

// Loads the topology with PCI devices. `xml`: a file instead of this machine; throws moe::Error if it cannot be read,
// or if hwloc cannot examine the machine. Only tests pass another `library`.
HwlocTopology loadHwloc(const std::filesystem::path& xml = {}, const char* library = kHwlocLibrary);

}  // namespace moe::topology
