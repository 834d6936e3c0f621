// The GPUs of this machine, and which of them reach each other's memory. The CUDA driver, loaded at run time, says so;
// for NVLink, NVML does. This creates no context and allocates nothing on a GPU.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace moe::topology {

// The CUDA driver's attribute for the order of adapters' writes, and the value that says that the GPU's own kernels see
// them in the order of arrival (CUGPUDirectRDMAWritesOrdering of cuda.h).
inline constexpr int kWritesOrderingAttribute = 118;
constexpr bool ordersWrites(int attribute) {
  return attribute >= 100;
}

struct Gpu {
  int ordinal = 0;  // as CUDA_VISIBLE_DEVICES makes it
  std::string name;
  std::string busId;  // "0000:17:00.0"
  int numaNode = -1;
  std::uint64_t memoryBytes = 0;
  int computeMajor = 0;
  int computeMinor = 0;
  int multiprocessors = 0;
  int nvlinks = 0;            // active ones
  bool dmaBuf = false;        // its memory can be given to adapters without nvidia_peermem
  bool ordersWrites = false;  // its kernels see what adapters write in the order in which it comes
};

struct GpuLink {
  bool peerAccess = false;  // loads and stores from the row's GPU into the column's
  bool atomics = false;
  bool nvlink = false;
};

struct GpuInventory {
  std::vector<Gpu> gpus;
  std::vector<std::vector<GpuLink>> links;  // [from][to]
  int driverVersion = 0;                    // of the CUDA driver interface: 13000 is 13.0; 0 if there is no driver
  std::string reason;                       // why there are no GPUs; empty if there are
};

// Never throws for something that the machine lacks; `reason` says it.
GpuInventory findGpus(const std::filesystem::path& sys);

}  // namespace moe::topology
