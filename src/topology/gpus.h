// The GPUs of this machine, and which of them reach each other's memory. The information comes from the CUDA driver,
// loaded at run time, and from NVML for NVLink. This creates no context and allocates nothing on a GPU.
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
  int ordinal = 0;  // in the numbering of CUDA_VISIBLE_DEVICES
  std::string name;
  std::string busId;  // "0000:17:00.0"
  int numaNode = -1;
  std::uint64_t memoryBytes = 0;
  int computeMajor = 0;
  int computeMinor = 0;
  int multiprocessors = 0;
  int nvlinks = 0;            // active links
  std::string fabric;         // its clique on an NVLink fabric that joins hosts; empty: none
  bool dmaBuf = false;        // its memory can be given to adapters without nvidia_peermem
  bool ordersWrites = false;  // its kernels see adapters' writes in the order of arrival
};

struct GpuLink {
  bool peerAccess = false;  // loads and stores from the row's GPU into the column's
  bool atomics = false;
  bool nvlink = false;
};

struct GpuInventory {
  std::vector<Gpu> gpus;
  std::vector<std::vector<GpuLink>> links;  // [from][to]
  int driverVersion = 0;                    // version of the CUDA driver interface: 13000 is 13.0; 0 if there is no
                                            // driver
  std::string reason;                       // why there are no GPUs; otherwise empty
  bool imexChannel = false;                 // the IMEX service lets this process share memory with other hosts
};

// Never throws because the machine lacks something; `reason` says what.
GpuInventory findGpus(const std::filesystem::path& sys, const std::filesystem::path& dev = "/dev");

}  // namespace moe::topology
