#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "tools/moe_info_report.h"

namespace moe::tools {
namespace {

using topology::Gpu;
using topology::GpuLink;
using topology::Nic;

nlohmann::ordered_json gpusJson(const Report& report) {
  nlohmann::ordered_json json = nlohmann::ordered_json::array();
  for (const Gpu& gpu : report.topology.gpus.gpus) {
    json.push_back({{"ordinal", gpu.ordinal},
                    {"name", gpu.name},
                    {"bus_id", gpu.busId},
                    {"numa_node", gpu.numaNode},
                    {"memory_bytes", gpu.memoryBytes},
                    {"compute", fmt::format("{}.{}", gpu.computeMajor, gpu.computeMinor)},
                    {"multiprocessors", gpu.multiprocessors},
                    {"nvlinks", gpu.nvlinks},
                    {"fabric", gpu.fabric},
                    {"imex_channel", report.topology.gpus.imexChannel},
                    {"nics", nicsOf(report, gpu)}});
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
  return {{"processor", machine.processor},
          {"cores", machine.cores},
          {"threads", machine.threads},
          {"numa_nodes", nodes},
          {"reason", machine.reason}};
}

nlohmann::ordered_json railsJson(const topology::Rdma& rdma) {
  nlohmann::ordered_json rails = nlohmann::ordered_json::array();
  for (const topology::NicPort& port : rdma.nics.rails)
    rails.push_back({{"nic", textOf(port.name)}, {"fault", port.fault}});
  for (const topology::RdmaPlan& plan : rdma.plans) {
    nlohmann::ordered_json& rail = rails[static_cast<std::size_t>(plan.rail)];
    rail["link_layer"] = nameOf(plan.address.layer);
    rail["gid_index"] = plan.gidIndex;
    rail["gid"] = topology::textOf(plan.address.gid);
    rail["mtu"] = plan.mtu;
    rail["traffic_class"] = plan.trafficClass;
    rail["service_level"] = plan.serviceLevel;
    rail["queue_pairs"] = plan.queuePairs;
    rail["ack_timeout"] = plan.ackTimeout;
    rail["retries"] = plan.retries;
  }
  return rails;
}

nlohmann::ordered_json rdmaJson(const Report& report) {
  const topology::NicChoice& nics = report.rdma.nics;
  nlohmann::ordered_json gpus = nlohmann::ordered_json::array();
  for (std::size_t gpu = 0; gpu < nics.ofGpus.size(); ++gpu) {
    nlohmann::ordered_json rails = nlohmann::ordered_json::array();
    for (const auto& nic : nics.ofGpus[gpu]) rails.push_back({{"rail", nic.rail}, {"distance", nameOf(nic.distance)}});
    gpus.push_back({{"bus_id", report.topology.pci.gpus[gpu].busId}, {"rails", rails}});
  }
  nlohmann::ordered_json leftOut = nlohmann::ordered_json::array();
  for (const auto& port : nics.leftOut) leftOut.push_back({{"nic", textOf(port.name)}, {"reason", port.reason}});
  nlohmann::ordered_json prerequisites = nlohmann::ordered_json::array();
  for (const topology::Prerequisite& one : report.prerequisites) {
    prerequisites.push_back(
        {{"name", one.name}, {"presence", nameOf(one.presence)}, {"found", one.found}, {"advice", one.advice}});
  }
  return {{"reason", nics.reason},           {"gpus", gpus},
          {"rails", railsJson(report.rdma)}, {"left_out", leftOut},
          {"prerequisites", prerequisites},  {"between_hosts", report.betweenHosts}};
}

}  // namespace

nlohmann::ordered_json toJson(const Report& report) {
  nlohmann::ordered_json backends = nlohmann::ordered_json::object();
  for (const BackendStatus& backend : report.backends) {
    backends[backend.name] = {{"available", backend.available}, {"reason", backend.reason}};
  }
  return {{"version", versionText(report.version)},
          {"backends", backends},
          {"cuda_driver", report.topology.gpus.driverVersion},
          {"gpus", gpusJson(report)},
          {"gpu_links", linksJson(report.topology.gpus)},
          {"nics", nicsJson(report.topology.nics)},
          {"rdma", rdmaJson(report)},
          {"machine", machineJson(report.topology.machine)}};
}

}  // namespace moe::tools
