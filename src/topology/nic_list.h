// The content of MOECOMM_NICS: the adapters to use, for all GPUs or for each.
#pragma once

#include <map>
#include <string>
#include <tuple>
#include <vector>

namespace moe::topology {

struct NicName {
  std::string nic;
  int port = 1;

  friend bool operator==(const NicName&, const NicName&) = default;
  friend bool operator<(const NicName& a, const NicName& b) {
    return std::tie(a.nic, a.port) < std::tie(b.nic, b.port);
  }
};

// "mlx5_0", or "mlx5_0:2" if it is not port 1.
std::string textOf(const NicName& name);

struct NicList {
  std::vector<NicName> order;                  // each name once, in order of first mention: the rails
  std::map<int, std::vector<NicName>> ofGpus;  // by the GPU's index; empty if the list holds for all GPUs
};

// "mlx5_0,mlx5_1:2" for all GPUs, or "0=mlx5_0;1=mlx5_1,mlx5_2" for each. Empty text is an empty list. Throws
// moe::Error.
NicList parseNicList(const std::string& text);

}  // namespace moe::topology
