// What the CUDA driver does not tell about NVLink, from the management library (looked for at run time).
#pragma once

#include <memory>
#include <string>

namespace moe::topology {

class Nvml {
 public:
  // Null if the library is not there or does not start.
  static std::unique_ptr<Nvml> open();

  Nvml(const Nvml&) = delete;
  Nvml& operator=(const Nvml&) = delete;
  ~Nvml();

  // 0 if there are none, or the GPU is not known by this bus id.
  int activeNvlinks(const std::string& busId) const;

  // MB/s (10^6) of the active ones together, one way, as they are sold; 0 if that is not known of one of them.
  double nvlinkMegabytes(const std::string& busId) const;

  // Whether the path between two GPUs is NVLink, possibly through a switch.
  bool connectedByNvlink(const std::string& busId, const std::string& otherBusId) const;

 private:
  struct Functions;
  explicit Nvml(std::unique_ptr<Functions> functions);

  std::unique_ptr<Functions> functions_;
};

}  // namespace moe::topology
