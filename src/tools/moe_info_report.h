// The findings of moe_info, the two forms in which it prints them, and the verdicts of --check. Pure.
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

// moe_info --check: whether a backend or RDMA can be used on this machine, and why not.
enum class Checked : int { all, host, cuda, rdma };

struct Usability {
  std::string name;
  std::vector<std::string> reasons;  // why it cannot be used; empty: it can
  std::string note;                  // how it would be used

  bool usable() const { return reasons.empty(); }
};

// One for each thing that was asked about.
std::vector<Usability> checkUsability(const Report& report, Checked which);

// A line for each thing that can be used, and for each reason of one that cannot.
std::string toText(const std::vector<Usability>& checks);

}  // namespace moe::tools
