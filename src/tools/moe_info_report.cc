#include "tools/moe_info_report.h"

#include <fmt/format.h>

#include <algorithm>

#include <nlohmann/json.hpp>

namespace moe::tools {
namespace {

using topology::Gpu;
using topology::GpuLink;
using topology::Nic;

constexpr double kGib = 1024.0 * 1024.0 * 1024.0;

std::string versionText(std::int32_t code) {
  return fmt::format("{}.{}.{}", code / 10000, code / 100 % 100, code % 100);
}

std::string driverText(int version) {
  return fmt::format("{}.{}", version / 1000, version % 1000 / 10);
}

std::string nodeText(int numaNode) {
  return numaNode < 0 ? "" : fmt::format(", NUMA node {}", numaNode);
}

std::string gpusText(const topology::Topology& topology) {
  if (topology.gpus.gpus.empty()) return fmt::format("GPUs: none ({})\n", topology.gpus.reason);
  std::string text =
      fmt::format("GPUs: {}, CUDA driver {}\n", topology.gpus.gpus.size(), driverText(topology.gpus.driverVersion));
  for (const Gpu& gpu : topology.gpus.gpus) {
    const int nic = nearestNic(topology, gpu);
    text += fmt::format("  {}: {}, {:.0f} GiB, compute {}.{}, {} multiprocessors, {}{}{}{}\n", gpu.ordinal, gpu.name,
                        static_cast<double>(gpu.memoryBytes) / kGib, gpu.computeMajor, gpu.computeMinor,
                        gpu.multiprocessors, gpu.busId, nodeText(gpu.numaNode),
                        gpu.nvlinks > 0 ? fmt::format(", {} NVLinks", gpu.nvlinks) : "",
                        nic >= 0 ? ", nearest adapter " + topology.nics[static_cast<std::size_t>(nic)].name : "");
  }
  return text;
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
      fmt::format("Processor: {}, {} cores, {} threads\n", machine.processor.empty() ? "unknown" : machine.processor,
                  machine.cores, machine.threads);
  for (const auto& node : machine.nodes) {
    text += fmt::format("  NUMA node {}: {:.0f} GiB, {} cores, {} threads ({})\n", node.number,
                        static_cast<double>(node.memoryBytes) / kGib, node.cores, node.threads, node.threadList);
  }
  return text;
}

nlohmann::ordered_json gpusJson(const topology::Topology& topology) {
  nlohmann::ordered_json json = nlohmann::ordered_json::array();
  for (const Gpu& gpu : topology.gpus.gpus) {
    const int nic = nearestNic(topology, gpu);
    json.push_back({{"ordinal", gpu.ordinal},
                    {"name", gpu.name},
                    {"bus_id", gpu.busId},
                    {"numa_node", gpu.numaNode},
                    {"memory_bytes", gpu.memoryBytes},
                    {"compute", fmt::format("{}.{}", gpu.computeMajor, gpu.computeMinor)},
                    {"multiprocessors", gpu.multiprocessors},
                    {"nvlinks", gpu.nvlinks},
                    {"nearest_nic", nic < 0 ? "" : topology.nics[static_cast<std::size_t>(nic)].name}});
  }
  return json;
}

nlohmann::ordered_json linksJson(const topology::GpuInventory& gpus) {
  nlohmann::ordered_json json = nlohmann::ordered_json::array();
  for (std::size_t from = 0; from < gpus.gpus.size(); ++from) {
    for (std::size_t to = 0; to < gpus.gpus.size(); ++to) {
      if (from == to) continue;
      const GpuLink& link = gpus.links[from][to];
      json.push_back({{"from", from},
                      {"to", to},
                      {"peer_access", link.peerAccess},
                      {"atomics", link.atomics},
                      {"nvlink", link.nvlink},
                      {"transport", transportBetween(gpus, from, to)}});
    }
  }
  return json;
}

nlohmann::ordered_json nicsJson(const std::vector<Nic>& nics) {
  nlohmann::ordered_json json = nlohmann::ordered_json::array();
  for (const Nic& nic : nics) {
    nlohmann::ordered_json ports = nlohmann::ordered_json::array();
    for (const auto& port : nic.ports) {
      ports.push_back(
          {{"number", port.number}, {"state", port.state}, {"rate", port.rate}, {"link_layer", port.linkLayer}});
    }
    json.push_back({{"name", nic.name},
                    {"rdma", nic.rdma},
                    {"up", nic.up},
                    {"bus_id", nic.busId},
                    {"numa_node", nic.numaNode},
                    {"interfaces", nic.interfaces},
                    {"speed_mbps", nic.speedMbps},
                    {"ports", ports}});
  }
  return json;
}

nlohmann::ordered_json machineJson(const topology::Machine& machine) {
  nlohmann::ordered_json nodes = nlohmann::ordered_json::array();
  for (const auto& node : machine.nodes) {
    nodes.push_back({{"number", node.number},
                     {"memory_bytes", node.memoryBytes},
                     {"cores", node.cores},
                     {"threads", node.threads},
                     {"thread_list", node.threadList}});
  }
  return {
      {"processor", machine.processor}, {"cores", machine.cores}, {"threads", machine.threads}, {"numa_nodes", nodes}};
}

}  // namespace

std::string toText(const Report& report) {
  std::string text = fmt::format("moecomm {}\nBackends:\n", versionText(report.version));
  for (const BackendStatus& backend : report.backends) {
    text += fmt::format("  {}: {}\n", backend.name, backend.available ? "available" : backend.reason);
  }
  return text + gpusText(report.topology) + linksText(report.topology.gpus) + nicsText(report.topology.nics) +
         machineText(report.topology.machine);
}

nlohmann::ordered_json toJson(const Report& report) {
  nlohmann::ordered_json backends = nlohmann::ordered_json::object();
  for (const BackendStatus& backend : report.backends) {
    backends[backend.name] = {{"available", backend.available}, {"reason", backend.reason}};
  }
  return {{"version", versionText(report.version)},
          {"backends", backends},
          {"cuda_driver", report.topology.gpus.driverVersion},
          {"gpus", gpusJson(report.topology)},
          {"gpu_links", linksJson(report.topology.gpus)},
          {"nics", nicsJson(report.topology.nics)},
          {"machine", machineJson(report.topology.machine)}};
}

}  // namespace moe::tools
