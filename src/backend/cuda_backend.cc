// The cuda backend: runs steps as kernels on the caller's stream, and chooses how many blocks and warps a step gets.
#include <algorithm>
#include <cstring>

#include "backend/cuda_memory.h"
#include "backend/cuda_own_stream.h"
#include "backend/cuda_plan.h"
#include "backend/cuda_raii.h"
#include "device/kernels/kernels.h"
#include "topology/nvml.h"

namespace moe {
namespace {

constexpr int kLazyLoading = 2;  // CU_MODULE_LAZY_LOADING

// Whether kernels are loaded at their first launch, CUDA's default since 12.2: CUDA_MODULE_LOADING in the environment.
bool loadsKernelsLazily() noexcept {
  auto* loadingMode = driverFunction<int(int*)>("cuModuleGetLoadingMode", 11070);
  int mode = 0;
  return loadingMode != nullptr && loadingMode(&mode) == 0 && mode == kLazyLoading;
}

// The speed of a GPU's links in GB/s; 0 if it is not known.
double linkSpeed(int device) {
  char busId[32] = {};
  if (!cudaOk(cudaDeviceGetPCIBusId(busId, sizeof busId, device))) return 0;
  const std::unique_ptr<topology::Nvml> nvml = topology::Nvml::open();
  return nvml ? nvml->nvlinkMegabytes(busId) / 1000 : 0;
}

class CudaBackend final : public Backend {
 public:
  CudaBackend(int device, const cudaDeviceProp& properties, bool bulk)
      : device_(device),
        bulk_(bulk),
        dependent_(properties.major >= 9),
        copies_(device, "cannot create a stream for counts") {
    machine_.major = properties.major;
    machine_.multiprocessors = properties.multiProcessorCount;
    machine_.sharedBytes = properties.sharedMemPerBlockOptin;
    machine_.linkGBs = linkSpeed(device);
    const DeviceScope scope(device);
    checkCuda(loadKernels(bulk, bulkSharedBytesMax(machine_)),
              [&] { return "cannot load the kernels on device " + std::to_string(device); });
  }

  int kind() const noexcept override { return moeBackendCuda; }
  int device() const noexcept override { return device_; }
  bool bulkCopies() const noexcept override { return bulk_; }
  bool landingCombines() const noexcept override { return true; }
  bool hasPlainSteps() const noexcept override { return true; }
  // Off on a shared GPU: a kernel that waits for its predecessor would keep out another rank's kernel.
  bool overlapsSteps() const noexcept override { return dependent_ && machine_.sharers == 1; }
  void setSharers(int ranks) noexcept override { machine_.sharers = std::max(1, ranks); }

  Memory allocatePrivate(std::size_t bytes, const Allocator& allocator) override {
    return allocateDevice(bytes, allocator, moeMemoryPrivate, device_);
  }
  Memory allocateHostVisible(std::size_t bytes) override { return allocatePinned(bytes, device_); }
  Memory shareWithSteps(void* begin, std::size_t bytes, HostPages kind) override {
    return shareHostPages(begin, bytes, kind, device_);
  }

  void copyToPrivate(void* to, const void* from, std::size_t bytes) override {
    const DeviceScope scope(device_);
    checkCuda(cudaMemcpy(to, from, bytes, cudaMemcpyHostToDevice), "cannot copy to the device");
  }

  // Memory that is not pinned has been read when the call returns.
  void copyToPrivate(void* to, const void* from, std::size_t bytes, moeStream_t stream) override {
    const DeviceScope scope(device_);
    checkCuda(cudaMemcpyAsync(to, from, bytes, cudaMemcpyHostToDevice, stream), "cannot copy to the device");
  }

  void readWords(std::uint64_t* to, const std::uint64_t* from, std::size_t count) override {
    const DeviceScope scope(device_);
    checkCuda(cudaMemcpy(to, from, count * sizeof *to, cudaMemcpyDeviceToHost), "cannot copy from the device");
  }

  bool isFarFromHost() const noexcept override { return true; }
  bool bringWords(std::uint64_t* to, const std::uint64_t* from, std::size_t count, Deadline end) override {
    const DeviceScope scope(device_);
    const CaptureIsOthers relaxed;
    return cudaOk(cudaMemcpyAsync(to, from, count * sizeof *to, cudaMemcpyDeviceToHost, copies_.get())) &&
           copies_.drained(end);
  }

  bool loadsKernelsLazily() const noexcept override { return moe::loadsKernelsLazily(); }
  std::unique_ptr<WindowReader> makeReader(const std::uint8_t* window) override {
    return makeCudaReader(window, device_);
  }
  std::unique_ptr<WindowWriter> makeWriter(std::uint8_t* window) override { return makeCudaWriter(window, device_); }

  std::unique_ptr<Snapshot> makeSnapshot(const std::uint64_t* memory, std::size_t bytesMax) override {
    return makeCudaSnapshot(memory, bytesMax, device_);
  }

  int routeWarpsMax() const noexcept override { return kRouteBlocksMax; }
  int tableBlocksMax() const noexcept override { return 0; }

  LaunchShape shapeFor(const Workload& work) const noexcept override { return planLaunch(machine_, work, bulk_); }
  Parts partsFor(const LaunchShape& shape, int rows, std::uint32_t rowBytes) const noexcept override {
    return planParts(shape, rows, rowBytes);
  }

  moeResult_t launch(Step step, const StepParams& params, const LaunchShape& shape, moeStream_t stream,
                     std::string* what) noexcept override {
    const DeviceScope scope(device_);
    const std::uint32_t rowBytes = rowOf(step).combines() ? params.combine.rowBytes : 0;
    const WarpStages stages = warpStages(machine_, step, shape.warpsPerBlock, rowBytes);
    const KernelShape kernel{shape.blocks, shape.warpsPerBlock,   shape.bulk,
                             stages,       shape.describingWarps, overlapsSteps()};
    const cudaError_t error = launchKernel(step, params, kernel, reinterpret_cast<cudaStream_t>(stream));
    if (cudaOk(error)) return moeSuccess;
    *what = "cannot launch a kernel on device " + std::to_string(device_) + ": " + cudaText(error);
    return moeCudaError;
  }

  bool capturing(moeStream_t stream) const noexcept override {
    const DeviceScope scope(device_);
    cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
    return cudaOk(cudaStreamIsCapturing(reinterpret_cast<cudaStream_t>(stream), &status)) &&
           status != cudaStreamCaptureStatusNone;
  }

  void synchronize() noexcept override {
    const DeviceScope scope(device_);
    cudaOk(cudaDeviceSynchronize());
  }

 private:
  int device_;
  bool bulk_;
  bool dependent_;  // kernels can be launched as dependent ones
  OwnStream copies_;
  GpuMachine machine_;
};

}  // namespace

void countLayout(const LayoutArgs& args, int device, moeStream_t stream) {
  int chosen = device;
  if (device < 0) checkCuda(cudaGetDevice(&chosen), "moeGetDispatchLayout: there is no current GPU");
  const DeviceScope scope(chosen);
  checkCuda(launchLayout(args, reinterpret_cast<cudaStream_t>(stream)), "moeGetDispatchLayout: cannot launch a kernel");
}

std::unique_ptr<Backend> makeCudaBackend(int device, Bulk bulk, std::string* why) {
  int count = 0;
  cudaError_t error = cudaGetDeviceCount(&count);
  if (error == cudaSuccess && device < 0) error = cudaGetDevice(&device);
  cudaDeviceProp properties{};
  if (error == cudaSuccess && device < count) error = cudaGetDeviceProperties(&properties, device);
  if (error != cudaSuccess || device >= count) {
    cudaGetLastError();
    *why = error != cudaSuccess
               ? cudaText(error)
               : "device " + std::to_string(device) + " does not exist, there are " + std::to_string(count);
    return nullptr;
  }
  if (properties.major < 8) {
    *why = std::string(properties.name) + " is older than compute capability 8.0";
    return nullptr;
  }
  const bool able = properties.major >= 9;
  if (bulk == Bulk::on && !able) {
    throw Error(moeUnsupported, std::string("MOECOMM_BULK is on, but ") + properties.name + " has no bulk copies");
  }
  return std::make_unique<CudaBackend>(device, properties, able && bulk != Bulk::off);
}

}  // namespace moe
