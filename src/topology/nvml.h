// Facts about NVLink from NVIDIA's management library, which the CUDA driver does not report. It is loaded at run time.
#pragma once

#include <memory>
#include <string>

namespace moe::topology {

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

 private:
  struct Functions;
  explicit Nvml(std::unique_ptr<Functions> functions);

  std::unique_ptr<Functions> functions_;
};

}  // namespace moe::topology
