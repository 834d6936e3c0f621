#include <fmt/format.h>

#include <algorithm>

#include "tools/moe_info_report.h"

namespace moe::tools {
namespace {

using topology::NeededFor;
using topology::Prerequisite;
using topology::Presence;

Usability checkBackend(const Report& report, const std::string& name) {
  Usability check{name, {}, ""};
  const auto backend = std::find_if(report.backends.begin(), report.backends.end(),
                                    [&](const BackendStatus& one) { return one.name == name; });
  if (backend == report.backends.end()) check.reasons.emplace_back("this library does not know it");
  if (backend != report.backends.end() && !backend->available) check.reasons.push_back(backend->reason);
  return check;
}

// RDMA of any kind. Prerequisites that cannot be checked here are taken to be there; the note names them.
Usability checkRdma(const Report& report) {
  Usability check{"rdma", {}, report.betweenHosts};
  if (!report.rdma.nics.reason.empty()) check.reasons.push_back(report.rdma.nics.reason);
  const bool hasGpu = !report.topology.gpus.gpus.empty();
  for (const Prerequisite& one : report.prerequisites) {
    const bool needed = one.neededFor == NeededFor::verbs || (hasGpu && one.neededFor == NeededFor::gpuMemory);
    if (!needed || one.presence != Presence::missing) continue;
    check.reasons.push_back(
        fmt::format("{}: {}{}", one.name, one.found, one.advice.empty() ? "" : "; to do: " + one.advice));
  }
  return check;
}

}  // namespace

std::vector<Usability> checkUsability(const Report& report, Checked which) {
  std::vector<Usability> checks;
  const auto asked = [which](Checked one) { return which == Checked::all || which == one; };
  if (asked(Checked::host)) checks.push_back(checkBackend(report, "host"));
  if (asked(Checked::cuda)) checks.push_back(checkBackend(report, "cuda"));
  if (asked(Checked::rdma)) checks.push_back(checkRdma(report));
  return checks;
}

std::string toText(const std::vector<Usability>& checks) {
  std::string text;
  for (const Usability& check : checks) {
    if (check.usable()) text += fmt::format("{}: usable{}\n", check.name, check.note.empty() ? "" : ": " + check.note);
    for (const std::string& reason : check.reasons) text += fmt::format("{}: not usable: {}\n", check.name, reason);
  }
  return text;
}

}  // namespace moe::tools
