#include "fake_mlx5/gpu_memory.h"

#include <dlfcn.h>

#include <algorithm>
#include <cstring>

namespace moe::test {
namespace {

// The few declarations of cuda.h that this file needs, so that it builds and loads without CUDA.
using CuResult = int;
using CuContext = struct CUctx_st*;
using CuStream = struct CUstream_st*;
constexpr int kMemoryTypeAttribute = 2, kContextAttribute = 1;
constexpr unsigned kDeviceMemory = 2, kNonBlockingStream = 1, kPortable = 1;

struct Driver {
  CuResult (*pointerGetAttribute)(void* value, int attribute, std::uint64_t address);
  CuResult (*contextGetCurrent)(CuContext*);
  CuResult (*contextSetCurrent)(CuContext);
  CuResult (*streamCreate)(CuStream*, unsigned flags);
  CuResult (*streamDestroy)(CuStream);
  CuResult (*streamSynchronize)(CuStream);
  CuResult (*hostAllocate)(void**, std::size_t, unsigned flags);
  CuResult (*hostFree)(void*);
  CuResult (*copyToHost)(void* to, std::uint64_t from, std::size_t, CuStream);
  CuResult (*copyToDevice)(std::uint64_t to, const void* from, std::size_t, CuStream);
};

template <class Function>
bool find(void* library, const char* name, Function** function) {
  *function = reinterpret_cast<Function*>(dlsym(library, name));
  return *function != nullptr;
}

// cuda.h maps the plain names to the names with _v2.
bool findAll(void* library, Driver* driver) {
  return find(library, "cuPointerGetAttribute", &driver->pointerGetAttribute) &&
         find(library, "cuCtxGetCurrent", &driver->contextGetCurrent) &&
         find(library, "cuCtxSetCurrent", &driver->contextSetCurrent) &&
         find(library, "cuStreamCreate", &driver->streamCreate) &&
         find(library, "cuStreamDestroy_v2", &driver->streamDestroy) &&
         find(library, "cuStreamSynchronize", &driver->streamSynchronize) &&
         find(library, "cuMemHostAlloc", &driver->hostAllocate) && find(library, "cuMemFreeHost", &driver->hostFree) &&
         find(library, "cuMemcpyDtoHAsync_v2", &driver->copyToHost) &&
         find(library, "cuMemcpyHtoDAsync_v2", &driver->copyToDevice);
}

// Returns null if the program does not use CUDA (yet).
const Driver* loadedDriver() {
  void* library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
  if (library == nullptr) return nullptr;
  static Driver driver;
  static const bool isComplete = findAll(library, &driver);
  dlclose(library);  // the program keeps it loaded
  return isComplete ? &driver : nullptr;
}

// Makes a context current within a scope.
class Current {
 public:
  Current(const Driver& driver, CuContext context) : driver_(driver) {
    driver_.contextGetCurrent(&before_);
    if (before_ != context) driver_.contextSetCurrent(context);
  }
  ~Current() { driver_.contextSetCurrent(before_); }
  Current(const Current&) = delete;
  Current& operator=(const Current&) = delete;

 private:
  const Driver& driver_;
  CuContext before_ = nullptr;
};

class StagedMemory : public GpuMemory {
 public:
  StagedMemory(const Driver& driver, CuContext context) : driver_(driver), context_(context) {
    const Current current(driver_, context_);
    isGood_ = driver_.streamCreate(&stream_, kNonBlockingStream) == 0 &&
              driver_.hostAllocate(&staging_, kStagingBytes, kPortable) == 0;
  }
  // Runs when the memory is deregistered and no kernel waits for the adapter any more. Errors at program exit do not
  // matter.
  ~StagedMemory() override {
    const Current current(driver_, context_);
    if (staging_ != nullptr) driver_.hostFree(staging_);
    if (stream_ != nullptr) driver_.streamDestroy(stream_);
  }
  bool isGood() const { return isGood_; }

  bool read(void* to, std::uint64_t from, std::uint64_t bytes) override {
    const Current current(driver_, context_);
    for (std::uint64_t done = 0; done < bytes;) {
      const std::uint64_t now = std::min(bytes - done, kStagingBytes);
      if (driver_.copyToHost(staging_, from + done, now, stream_) != 0) return false;
      if (driver_.streamSynchronize(stream_) != 0) return false;
      std::memcpy(static_cast<std::uint8_t*>(to) + done, staging_, now);
      done += now;
    }
    return true;
  }
  bool write(std::uint64_t to, const void* from, std::uint64_t bytes) override {
    const Current current(driver_, context_);
    for (std::uint64_t done = 0; done < bytes;) {
      const std::uint64_t now = std::min(bytes - done, kStagingBytes);
      std::memcpy(staging_, static_cast<const std::uint8_t*>(from) + done, now);
      if (driver_.copyToDevice(to + done, staging_, now, stream_) != 0) return false;
      if (driver_.streamSynchronize(stream_) != 0) return false;
      done += now;
    }
    return true;
  }

 private:
  static constexpr std::uint64_t kStagingBytes = 1 << 16;
  const Driver& driver_;
  CuContext context_;
  CuStream stream_ = nullptr;
  void* staging_ = nullptr;
  bool isGood_ = false;
};

}  // namespace

std::shared_ptr<GpuMemory> openGpuMemory(std::uint64_t address) {
  const Driver* driver = loadedDriver();
  unsigned kind = 0;
  if (driver == nullptr || driver->pointerGetAttribute(&kind, kMemoryTypeAttribute, address) != 0) return nullptr;
  if (kind != kDeviceMemory) return nullptr;
  // Memory that was mapped into an address range belongs to no context. Then the context of the registering thread is
  // used.
  CuContext context = nullptr;
  if (driver->pointerGetAttribute(&context, kContextAttribute, address) != 0 || context == nullptr) {
    driver->contextGetCurrent(&context);
  }
  auto memory = std::make_shared<StagedMemory>(*driver, context);
  std::uint64_t word = 0;
  // Copies the bytes out and back once. A first copy may load code, and such a load would later wait for kernels.
  const bool works =
      memory->isGood() && memory->read(&word, address, sizeof(word)) && memory->write(address, &word, sizeof(word));
  return works ? memory : nullptr;
}

}  // namespace moe::test
