// What hwloc knows about a machine: this one, or one that was written to an XML file. machine.h and pci_tree.h read it.
// hwloc is looked for at run time: without it nothing is known but the reason. Of its header only types are used, as
// its inline functions would need the library.
#pragma once

#include <hwloc.h>

#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace moe::topology {

struct HwlocFunctions;

// Of hwloc 2, which is what the types of its header belong to.
inline constexpr const char* kHwlocLibrary = "libhwloc.so.15";

class HwlocTopology {
 public:
  // Nothing is known, because of this.
  explicit HwlocTopology(std::string reason) : reason_(std::move(reason)) {}
  HwlocTopology(std::shared_ptr<const HwlocFunctions> functions, const std::filesystem::path& xml);

  // Empty if the machine is known.
  const std::string& reason() const { return reason_; }

  // In hwloc's order. Only of a machine that is known, as all that follows.
  std::vector<hwloc_obj_t> objects(hwloc_obj_type_t type) const;
  // Objects of a type that have their processors within `set`.
  int countInside(hwloc_const_bitmap_t set, hwloc_obj_type_t type) const;

  // The one number in a set, or -1 if there are none or several.
  int onlyOne(hwloc_const_bitmap_t set) const;
  // "0-15,32-47"
  std::string listOf(hwloc_const_bitmap_t set) const;

 private:
  std::string reason_;
  std::shared_ptr<const HwlocFunctions> functions_;
  std::shared_ptr<hwloc_topology> topology_;
};

// With PCI devices. `xml`: a file instead of this machine; throws moe::Error if it cannot be read, or if hwloc cannot
// look at the machine. `library` is another one in tests only.
HwlocTopology loadHwloc(const std::filesystem::path& xml = {}, const char* library = kHwlocLibrary);

}  // namespace moe::topology
