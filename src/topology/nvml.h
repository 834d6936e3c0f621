// Facts about NVLink from NVIDIA's management library, which the CUDA driver does not report. It is loaded at run time.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

namespace moe::topology {

// The GPUs of an NVLink fabric that reach each other's memory, also between hosts.
struct FabricClique {
  std::array<std::uint8_t, 16> cluster{};  // UUID of the fabric
  std::uint32_t number = 0;

  bool operator==(const FabricClique&) const = default;
};

// "0123...ef.7": the cluster and the number.
std::string describe(const FabricClique& clique);

class Nvml {
 public:
  // Returns null if the library is missing or does not start.
  static std::unique_ptr<Nvml> open();

  Nvml(const Nvml&) = delete;
  Nvml& operator=(const Nvml&) = delete;
  ~Nvml();

  // 0 if there are none, or if no GPU has this bus id.
  int activeNvlinks(const std::string& busId) const;

  // Nominal MB/s (10^6) of all active links together, one way; 0 if the speed of one of them is not known.
  double nvlinkMegabytes(const std::string& busId) const;

  // Whether the path between two GPUs is NVLink, possibly through a switch.
  bool connectedByNvlink(const std::string& busId, const std::string& otherBusId) const;

  // Whether a GPU cannot read or cannot write the other's memory. False if that is not known.
  bool cannotAccess(const std::string& busId, const std::string& otherBusId) const;

  // The clique of a GPU; nothing: it is in no fabric that joins hosts, or its registration there has not succeeded.
  std::optional<FabricClique> fabricClique(const std::string& busId) const;

 private:
  struct Functions;
  explicit Nvml(std::unique_ptr<Functions> functions);

  std::unique_ptr<Functions> functions_;
};

}  // namespace moe::topology
