// Where a rank of moe_perf keeps its rows and runs its own work: host memory and the calling thread, or a GPU and one
// stream. The driver is written once against this interface. Errors are std::runtime_error.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <string>

#include "moecomm.h"
#include "perf/payload/work.h"

namespace moe::perf {

class Device {
 public:
  Device() = default;
  virtual ~Device() = default;
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;

  virtual std::string name() const = 0;
  virtual moeStream_t stream() const = 0;

  // Aligned to 256 bytes and zeroed. Must not be called while communication is in flight on this machine's GPUs,
  // because the driver may wait for all of them.
  virtual void* allocate(std::size_t bytes) = 0;
  virtual void free(void* memory) = 0;

  // Both wait for the stream before and after.
  virtual void upload(void* to, const void* from, std::size_t bytes) = 0;
  virtual void download(void* to, const void* from, std::size_t bytes) = 0;
  virtual void clear(void* memory, std::size_t bytes) = 0;

  // Runs in stream order.
  virtual void run(const Work& work) = 0;

  // Records the time in stream order. Marks are numbered from 0, and `reserveMarks` makes them beforehand.
  virtual void reserveMarks(int count) = 0;
  virtual void mark(int index) = 0;
  virtual double microsecondsBetween(int first, int second) = 0;  // after wait()

  // Waits until all work of the stream is done.
  virtual void wait() = 0;

  // Graphs hold what `record` puts on the stream, and may be launched any number of times. dropGraphs frees all of
  // them.
  virtual bool hasGraphs() const = 0;
  virtual int capture(const std::function<void()>& record) = 0;
  virtual void launch(int graph) = 0;
  virtual void dropGraphs() = 0;

  // The number of blocks of the largest kernel that `record` puts on the stream, without running it. 0 without graphs.
  virtual int blocksOf(const std::function<void()>& record) = 0;
};

std::unique_ptr<Device> makeHostDevice();

// 0 where there is no usable GPU or moe_perf was built without CUDA.
int gpuCount();

// Makes the GPU current for the calling thread, and loads every kernel of moe_perf.
std::unique_ptr<Device> makeGpuDevice(int ordinal);

// Memory of the device that frees itself.
template <class Element>
class Buffer {
 public:
  Buffer() = default;
  Buffer(Device& device, std::size_t count) : device_(&device), count_(count) {
    if (count > 0) memory_ = static_cast<Element*>(device.allocate(count * sizeof(Element)));
  }
  Buffer(Buffer&& other) noexcept { *this = std::move(other); }
  Buffer& operator=(Buffer&& other) noexcept {
    std::swap(device_, other.device_);
    std::swap(count_, other.count_);
    std::swap(memory_, other.memory_);
    return *this;
  }
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;
  ~Buffer() {
    if (memory_ != nullptr) device_->free(memory_);
  }

  Element* get() const { return memory_; }
  std::size_t count() const { return count_; }

 private:
  Device* device_ = nullptr;
  std::size_t count_ = 0;
  Element* memory_ = nullptr;
};

// A copy of `values` on the device.
template <class Values>
auto toDevice(Device& device, const Values& values) {
  Buffer<typename Values::value_type> buffer(device, values.size());
  if (!values.empty()) device.upload(buffer.get(), values.data(), values.size() * sizeof(typename Values::value_type));
  return buffer;
}

}  // namespace moe::perf
