// What the fastest transport between hosts needs - RDMA that the GPU itself posts - and whether this machine has it.
// moe_info shows it.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "topology/rdma.h"

namespace moe::topology {

enum class Presence { kPresent, kMissing, kUnknown };

// "present", "missing", "not checkable here".
const char* nameOf(Presence presence);

struct Prerequisite {
  std::string name;
  Presence presence = Presence::kUnknown;
  std::string found;   // what there is, what there is not, or why it cannot be told
  std::string advice;  // what to do; empty unless it is missing
};

// Where to look; other places in tests only.
struct SystemPlaces {
  std::filesystem::path sys = "/sys";
  std::filesystem::path proc = "/proc";
  std::filesystem::path dev = "/dev";
  std::string verbsLibrary = "libibverbs.so.1";
};

std::vector<Prerequisite> checkPrerequisites(const Topology& topology, const Rdma& rdma,
                                             const SystemPlaces& places = {});

}  // namespace moe::topology
