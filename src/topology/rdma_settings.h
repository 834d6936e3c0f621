// The settings of a user for RDMA: the variables MOECOMM_NICS and MOECOMM_RDMA_*, and SYSFS_PATH for tests.
// src/comm/config/config.cc reads them and checks the ranges of numbers. Texts are parsed where they are used.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace moe::topology {

enum class LinkLayer : std::int32_t { automatic, infiniBand, ethernet };

// From and to the words of sysfs.
inline LinkLayer layerOf(std::string_view word) {
  return word == "InfiniBand" ? LinkLayer::infiniBand : LinkLayer::ethernet;
}
inline const char* nameOf(LinkLayer layer) {
  return layer == LinkLayer::infiniBand ? "InfiniBand" : "Ethernet";
}

enum class GidFamily : std::int32_t { automatic, ipv4, ipv6 };

// Which side writes the adapter's doorbell registers where steps post to its queues.
enum class Doorbell : std::int32_t { automatic, steps, thread };

struct RdmaSettings {
  std::string nics;               // nic_list.h; empty: chosen
  std::int32_t nicsPerGpu = 0;    // 0: chosen
  std::int32_t linkLayer = 0;     // a LinkLayer
  std::int32_t gidIndex = -1;     // -1: chosen
  std::int32_t gidFamily = 0;     // a GidFamily
  std::string gidPrefix;          // empty: any
  std::int32_t mtu = 4096;        // at most
  std::int32_t trafficClass = 0;  // for RoCE: DSCP in the upper six bits
  std::int32_t serviceLevel = 0;
  std::int32_t queuePairs = 0;  // per peer; 0: chosen
  std::int32_t ackTimeout = 0;  // 4.096 us times 2 to the power of this; 0: chosen
  std::int32_t retries = 7;
  std::int32_t threads = 0;   // threads that post for steps; 0: chosen
  std::int32_t doorbell = 0;  // a Doorbell
  std::int32_t softUar = 0;   // 1: the registers are memory
  std::string sys = "/sys";   // where sysfs is
};

}  // namespace moe::topology
