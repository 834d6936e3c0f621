#include <fmt/format.h>
#include <unistd.h>

#include <cstring>

#include "base/error.h"
#include "transport/rdma/adapter.h"

namespace moe::verbs {
namespace {

constexpr int kAccess = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE;

WindowRegion regionOf(MemoryRegion region, const char* how) {
  const WindowKeys keys{region->lkey, region->rkey, region->rkey};
  return {std::move(region), keys, how};
}

MemoryRegion registerByAddress(const Adapter& adapter, const RemoteSetup& setup) {
  const Library& library = adapter.library();
  return {library.regMr(adapter.domain(), setup.window, setup.windowBytes, kAccess), {library.deregMr}};
}

// A dma-buf consists of whole pages. The region is only the window.
MemoryRegion registerDmaBuf(const Adapter& adapter, const RemoteSetup& setup, const GpuDriver& driver,
                            std::string* why) {
  const Library& library = adapter.library();
  if (library.regDmaBufMr == nullptr) {
    *why = "libibverbs has no ibv_reg_dmabuf_mr (rdma-core 34 has)";
    return {};
  }
  const auto page = static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
  const auto window = reinterpret_cast<std::uint64_t>(setup.window);
  const std::uint64_t begin = window / page * page;
  const std::uint64_t end = (window + setup.windowBytes + page - 1) / page * page;
  const Fd fd = driver.exportMemory(setup.backend.device(), begin, end - begin, why);
  if (!fd) return {};
  MemoryRegion region(
      library.regDmaBufMr(adapter.domain(), window - begin, setup.windowBytes, window, fd.get(), kAccess),
      {library.deregMr});
  if (!region) *why = std::string("ibv_reg_dmabuf_mr: ") + std::strerror(errno);
  return region;
}

}  // namespace

WindowRegion registerGpuWindow(const Adapter& adapter, const RemoteSetup& setup, const GpuDriver& driver) {
  const int gpu = setup.backend.device();
  if (!driver.ordersWrites(gpu)) {
    throw Error(moeUnsupported, fmt::format("RDMA: GPU {} does not keep the order of an adapter's writes, so flags are "
                                            "unreliable; use MOECOMM_TRANSPORT=tcp",
                                            gpu));
  }
  if (!driver.finishCopiesInTime(gpu, reinterpret_cast<std::uint64_t>(setup.window))) {
    setup.log.write(moeLogInfo, "net",
                    "GPU {} cannot set CU_POINTER_ATTRIBUTE_SYNC_MEMOPS for the window: an adapter may read old bytes "
                    "where a cudaMemcpy from another stream has not written yet",
                    gpu);
  }
  std::string why;
  if (MemoryRegion region = registerDmaBuf(adapter, setup, driver, &why)) return regionOf(std::move(region), "dma-buf");
  if (MemoryRegion region = registerByAddress(adapter, setup)) return regionOf(std::move(region), "peer memory");
  throw Error(moeUnsupported,
              fmt::format("RDMA: {} cannot reach the memory of GPU {}: not as a dma-buf ({}), nor as peer memory "
                          "(ibv_reg_mr: {}); load nvidia_peermem, or use a driver and a kernel (5.12) with dma-buf",
                          adapter.name(), gpu, why, std::strerror(errno)));
}

WindowRegion registerWindow(const Adapter& adapter, const RemoteSetup& setup) {
  if (setup.backend.kind() == moeBackendCuda) return registerGpuWindow(adapter, setup, GpuDriver::load());
  if (MemoryRegion region = registerByAddress(adapter, setup)) return regionOf(std::move(region), "host memory");
  const char* advice = errno == ENOMEM ? " (is ulimit -l high enough?)" : "";
  throw adapter.failure(fmt::format("cannot register the window, {} bytes{}", setup.windowBytes, advice));
}

}  // namespace moe::verbs
