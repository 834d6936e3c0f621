// The prerequisites of the fastest transport between hosts, RDMA that the GPU posts itself, and whether this machine
// has them. moe_info shows them.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "topology/rdma.h"

namespace moe::topology {

enum class Presence { present, missing, unknown };

// "present", "missing", "not checkable here".
const char* nameOf(Presence presence);

// The feature that needs the prerequisite, slowest first. kGpuMemory: any RDMA, if ranks have GPUs.
enum class NeededFor { verbs, gpuMemory, ibgda, gpuRings, speed };

struct Prerequisite {
  std::string name;
  Presence presence = Presence::unknown;
  std::string found;   // the thing that was found or is missing, or why this is not known
  std::string advice;  // what to do; empty if it is present or nothing can be done
  NeededFor neededFor = NeededFor::speed;
};

// Where to look. Only tests change these places.
struct SystemPlaces {
  std::filesystem::path sys = "/sys";
  std::filesystem::path proc = "/proc";
  std::filesystem::path dev = "/dev";
  std::string verbsLibrary = "libibverbs.so.1";
  std::string mlx5Library = "libmlx5.so.1";
};

std::vector<Prerequisite> checkPrerequisites(const Topology& topology, const Rdma& rdma,
                                             const SystemPlaces& places = {});

// The transport that ranks of this machine would use towards other hosts, and why no better one: "verbs, not IBGDA:
// mlx5 adapters: ...". This tries nothing. It names what could not be checked, and assumes that it is there.
std::string transportBetweenHosts(const std::vector<Prerequisite>& prerequisites, bool hasGpu);

}  // namespace moe::topology
