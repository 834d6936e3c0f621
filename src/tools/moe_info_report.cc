#include "tools/moe_info_report.h"

#include <fmt/format.h>

#include <algorithm>

namespace moe::tools {
namespace {

using topology::Gpu;
using topology::GpuLink;
using topology::Nic;

constexpr double kGib = 1024.0 * 1024.0 * 1024.0;

std::string driverText(int version) {
  return fmt::format("{}.{}", version / 1000, version % 1000 / 10);
}

std::string nodeText(int numaNode) {
  return numaNode < 0 ? "" : fmt::format(", NUMA node {}", numaNode);
}

std::string fabricText(const topology::GpuInventory& gpus) {
  const auto inFabric = [](const Gpu& gpu) { return !gpu.fabric.empty(); };
  if (std::none_of(gpus.gpus.begin(), gpus.gpus.end(), inFabric)) return "";
  return fmt::format("NVLink fabric: {}\n",
                     gpus.imexChannel ? "ranks of a clique share memory, also between hosts"
                                      : "no channel of the IMEX service (/dev/nvidia-caps-imex-channels), so memory is "
                                        "not shared between hosts");
}

std::string gpusText(const Report& report) {
  const topology::Topology& topology = report.topology;
  if (topology.gpus.gpus.empty()) return fmt::format("GPUs: none ({})\n", topology.gpus.reason);
  std::string text =
      fmt::format("GPUs: {}, CUDA driver {}\n", topology.gpus.gpus.size(), driverText(topology.gpus.driverVersion));
  for (const Gpu& gpu : topology.gpus.gpus) {
    const std::vector<std::string> nics = nicsOf(report, gpu);
    text += fmt::format("  {}: {}, {:.0f} GiB, compute {}.{}, {} multiprocessors, {}{}{}{}{}\n", gpu.ordinal, gpu.name,
                        static_cast<double>(gpu.memoryBytes) / kGib, gpu.computeMajor, gpu.computeMinor,
                        gpu.multiprocessors, gpu.busId, nodeText(gpu.numaNode),
                        gpu.nvlinks > 0 ? fmt::format(", {} NVLinks", gpu.nvlinks) : "",
                        gpu.fabric.empty() ? "" : ", fabric " + gpu.fabric,
                        nics.empty() ? "" : fmt::format(", adapter {}", fmt::join(nics, " ")));
  }
  return text + fabricText(topology.gpus);
}

const char* linkName(const GpuLink& link) {
  if (link.nvlink) return "NVLink";
  return link.peerAccess ? "PCIe" : "-";
}

std::string linksText(const topology::GpuInventory& gpus) {
  if (gpus.gpus.size() < 2) return "";
  std::string text = "Links (transport between processes):\n";
  for (std::size_t from = 0; from < gpus.gpus.size(); ++from) {
    for (std::size_t to = from + 1; to < gpus.gpus.size(); ++to) {
      const GpuLink& link = gpus.links[from][to];
      text += fmt::format("  {} - {}: {}{}, {}\n", from, to, linkName(link), link.atomics ? " with atomics" : "",
                          transportBetween(gpus, from, to));
    }
  }
  return text;
}

std::string nicText(const Nic& nic) {
  std::string text = fmt::format("  {}: {}{}{}", nic.name, nic.up ? "up" : "down",
                                 nic.busId.empty() ? "" : ", " + nic.busId, nodeText(nic.numaNode));
  for (const auto& port : nic.ports) {
    text += fmt::format(", port {} {} {} {}", port.number, port.linkLayer, port.rate, port.state);
  }
  if (nic.rdma && !nic.interfaces.empty()) text += fmt::format(", interface {}", fmt::join(nic.interfaces, " "));
  if (!nic.rdma && nic.speedMbps > 0) text += fmt::format(", {} Mbit/s", nic.speedMbps);
  return text + "\n";
}

std::string nicsText(const std::vector<Nic>& nics) {
  std::string text;
  for (const bool rdma : {true, false}) {
    const auto matches = [rdma](const Nic& nic) { return nic.rdma == rdma; };
    const char* title = rdma ? "RDMA adapters" : "Other network adapters";
    if (std::none_of(nics.begin(), nics.end(), matches)) {
      text += fmt::format("{}: none\n", title);
      continue;
    }
    text += fmt::format("{}:\n", title);
    for (const Nic& nic : nics) {
      if (matches(nic)) text += nicText(nic);
    }
  }
  return text;
}

std::string machineText(const topology::Machine& machine) {
  std::string text =
      fmt::format("Processor: {}, {}{} threads\n", machine.processor.empty() ? "unknown" : machine.processor,
                  machine.cores > 0 ? fmt::format("{} cores, ", machine.cores) : "", machine.threads);
  if (!machine.reason.empty()) text += fmt::format("  nothing more is known: {}\n", machine.reason);
  for (const auto& node : machine.nodes) {
    text += fmt::format("  NUMA node {}: {:.0f} GiB, {} cores, {} threads ({})\n", node.number,
                        static_cast<double>(node.memoryBytes) / kGib, node.cores, node.threads, node.threadList);
  }
  return text;
}

std::string rdmaText(const Report& report) {
  const topology::NicChoice& nics = report.rdma.nics;
  if (!nics.reason.empty()) return fmt::format("RDMA: none ({})\n", nics.reason);
  std::string text = "RDMA:\n";
  for (std::size_t gpu = 0; gpu < nics.ofGpus.size(); ++gpu) {
    text += fmt::format("  {}:", report.topology.pci.gpus[gpu].busId);
    for (const auto& nic : nics.ofGpus[gpu]) text += fmt::format(" rail {} ({})", nic.rail, nameOf(nic.distance));
    text += "\n";
  }
  for (const topology::RdmaPlan& plan : report.rdma.plans) text += fmt::format("  {}\n", describe(plan));
  for (std::size_t rail = 0; rail < nics.rails.size(); ++rail) {
    const topology::NicPort& port = nics.rails[rail];
    if (!port.fault.empty()) text += fmt::format("  rail {}: {}: {}\n", rail, textOf(port.name), port.fault);
  }
  for (const auto& port : nics.leftOut) text += fmt::format("  not used: {}: {}\n", textOf(port.name), port.reason);
  return text;
}

std::string prerequisitesText(const std::vector<topology::Prerequisite>& prerequisites) {
  std::string text = "What RDMA from the GPU needs:\n";
  for (const topology::Prerequisite& one : prerequisites) {
    text += fmt::format("  {}: {}: {}\n", one.name, nameOf(one.presence), one.found);
    if (!one.advice.empty()) text += fmt::format("    to do: {}\n", one.advice);
  }
  return text;
}

}  // namespace

std::string versionText(std::int32_t code) {
  return fmt::format("{}.{}.{}", code / 10000, code / 100 % 100, code % 100);
}

std::vector<std::string> nicsOf(const Report& report, const Gpu& gpu) {
  const int index = indexOfGpu(report.topology.pci, gpu.busId);
  const topology::NicChoice& nics = report.rdma.nics;
  std::vector<std::string> names;
  if (index < 0 || nics.ofGpus.empty()) return names;
  for (const auto& nic : nics.ofGpus[static_cast<std::size_t>(index)]) {
    names.push_back(textOf(nics.rails[static_cast<std::size_t>(nic.rail)].name));
  }
  return names;
}

std::string toText(const Report& report) {
  std::string text = fmt::format("moecomm {}\nBackends:\n", versionText(report.version));
  for (const BackendStatus& backend : report.backends) {
    text += fmt::format("  {}: {}\n", backend.name, backend.available ? "available" : backend.reason);
  }
  return text + gpusText(report) + linksText(report.topology.gpus) + nicsText(report.topology.nics) + rdmaText(report) +
         prerequisitesText(report.prerequisites) + machineText(report.topology.machine) +
         fmt::format("Between hosts: {}\n", report.betweenHosts);
}

}  // namespace moe::tools
