// moe_info --check: whether a backend or RDMA can be used on this machine, and why not. Pure.
#pragma once

#include <string>
#include <vector>

#include "tools/moe_info_report.h"

namespace moe::tools {

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
