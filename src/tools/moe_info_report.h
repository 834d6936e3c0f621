// The findings of moe_info, and the two forms in which it prints them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "topology/prerequisites.h"
#include "topology/rdma.h"
#include "topology/topology.h"

namespace moe::tools {

struct BackendStatus {
  std::string name;
  bool available = false;
  std::string reason;  // why it is not available
};

struct Report {
  std::int32_t version = 0;  // as MOE_VERSION_CODE
  std::vector<BackendStatus> backends;
  topology::Topology topology;
  topology::Rdma rdma;
  std::vector<topology::Prerequisite> prerequisites;
  std::string betweenHosts;  // the transport that ranks of this machine would use, and why no better one
};

// "0.1.2".
std::string versionText(std::int32_t code);

// The names of the adapters that a GPU uses.
std::vector<std::string> nicsOf(const Report& report, const topology::Gpu& gpu);

std::string toText(const Report& report);
nlohmann::ordered_json toJson(const Report& report);

}  // namespace moe::tools
