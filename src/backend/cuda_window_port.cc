// Asynchronous copies between pinned memory and the window. Their stream waits for no other, because kernels that wait
// for the copied bytes may be running. After construction nothing is allocated, registered or copied synchronously,
// because that could wait for such a kernel.

#include <algorithm>
#include <array>
#include <cstring>

#include "backend/cuda_memory.h"
#include "backend/cuda_own_stream.h"

namespace moe {
namespace {

constexpr std::size_t kReadBytes = std::size_t{256} << 10;
constexpr std::size_t kSlotBytes = std::size_t{256} << 10;
constexpr std::size_t kSlots = 4;
constexpr std::size_t kRoomLeast = 4096;  // smaller room is not worth a receive
// The constructors copy this much once (the writer copies it back), so that the runtime sets up a stream's first copy
// before steps run.
constexpr std::size_t kFirstBytes = 8;

// Not a DeviceScope, which would switch back to device 0 in between and create a context there.
void stayOn(int device) {
  checkCuda(cudaSetDevice(device),
            [&] { return "cannot use device " + std::to_string(device) + " in a thread of the transport"; });
}

class CopyStream : public OwnStream {
 public:
  explicit CopyStream(int device) : OwnStream(device, "cannot create a stream for the window") {}

  void synchronize() const { checkCuda(cudaStreamSynchronize(get()), "cannot copy between the window and the host"); }
};

class CopyEvent {
 public:
  explicit CopyEvent(int device) {
    const DeviceScope scope(device);
    checkCuda(cudaEventCreateWithFlags(&event_, cudaEventDisableTiming), "cannot create an event for the window");
  }
  ~CopyEvent() { cudaEventDestroy(event_); }
  CopyEvent(const CopyEvent&) = delete;
  CopyEvent& operator=(const CopyEvent&) = delete;

  void record(const CopyStream& stream) { checkCuda(cudaEventRecord(event_, stream.get()), "cannot record an event"); }
  void wait() { checkCuda(cudaEventSynchronize(event_), "cannot copy to the window"); }

 private:
  cudaEvent_t event_ = nullptr;
};

class CudaReader final : public WindowReader {
 public:
  CudaReader(const std::uint8_t* window, int device)
      : device_(device), window_(window), stage_(allocatePinned(kReadBytes, device)), stream_(device) {
    const DeviceScope scope(device);
    fetch(0, kFirstBytes);
    stream_.synchronize();
  }

  void enter() override { stayOn(device_); }

  void begin() override { used_ = 0; }

  std::span<const std::uint8_t> fetch(std::uint64_t offset, std::size_t n) override {
    n = std::min(n, kReadBytes - used_);
    if (n == 0) return {};
    std::uint8_t* to = stage_.get() + used_;
    checkCuda(cudaMemcpyAsync(to, window_ + offset, n, cudaMemcpyDeviceToHost, stream_.get()),
              "cannot copy from the window");
    used_ += n;
    return {to, n};
  }

  void settle() override {
    if (used_ == 0) return;
    stream_.synchronize();
  }

 private:
  int device_;
  const std::uint8_t* window_;
  Memory stage_;
  CopyStream stream_;
  std::size_t used_ = 0;
};

// Stages bytes in slots, one after the other. A slot is reused when the copies out of it are done.
class CudaWriter final : public WindowWriter {
 public:
  CudaWriter(std::uint8_t* window, int device)
      : device_(device),
        window_(window),
        stage_(allocatePinned(kSlots * kSlotBytes, device)),
        stream_(device),
        done_{CopyEvent(device), CopyEvent(device), CopyEvent(device), CopyEvent(device)} {
    const DeviceScope scope(device);
    checkCuda(cudaMemcpyAsync(stage_.get(), window, kFirstBytes, cudaMemcpyDeviceToHost, stream_.get()),
              "cannot copy from the window");
    commit(0, kFirstBytes);
    stream_.synchronize();
  }
  ~CudaWriter() override {
    const DeviceScope scope(device_);
    cudaStreamSynchronize(stream_.get());  // the copies read the stage
  }

  void enter() override { stayOn(device_); }

  std::span<std::uint8_t> stage(std::uint64_t, std::size_t n) override {
    if (kSlotBytes - used_ < std::min(n, kRoomLeast)) nextSlot();
    return {at(), std::min(n, kSlotBytes - used_)};
  }

  void commit(std::uint64_t offset, std::size_t n) override {
    if (n == 0) return;
    checkCuda(cudaMemcpyAsync(window_ + offset, at(), n, cudaMemcpyHostToDevice, stream_.get()),
              "cannot copy to the window");
    used_ += n;
  }

  // The copy engine stores an aligned word at once.
  void writeWord(std::uint64_t offset, std::uint64_t word) override {
    used_ = (used_ + sizeof word - 1) / sizeof word * sizeof word;
    if (kSlotBytes - used_ < sizeof word) nextSlot();
    std::memcpy(at(), &word, sizeof word);
    commit(offset, sizeof word);
  }

  void settle() override { stream_.synchronize(); }

 private:
  std::uint8_t* at() const { return stage_.get() + slot_ * kSlotBytes + used_; }

  void nextSlot() {
    done_[slot_].record(stream_);
    slot_ = (slot_ + 1) % kSlots;
    done_[slot_].wait();  // returns at once if it was never recorded
    used_ = 0;
  }

  int device_;
  std::uint8_t* window_;
  Memory stage_;
  CopyStream stream_;
  std::array<CopyEvent, kSlots> done_;
  std::size_t slot_ = 0;
  std::size_t used_ = 0;
};

}  // namespace

std::unique_ptr<WindowReader> makeCudaReader(const std::uint8_t* window, int device) {
  return std::make_unique<CudaReader>(window, device);
}

std::unique_ptr<WindowWriter> makeCudaWriter(std::uint8_t* window, int device) {
  return std::make_unique<CudaWriter>(window, device);
}

}  // namespace moe
