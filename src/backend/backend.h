// What a communicator needs from the machine it runs on: memory, and a way to run a step. There are two: the host
// backend (steps run in the call, on its thread and others) and the cuda backend (steps are kernels on a stream).
#pragma once

#include <cstddef>
#include <memory>
#include <string>

#include "backend/bulk.h"
#include "backend/host_options.h"
#include "backend/memory.h"
#include "backend/window_port.h"
#include "device/view/step_names.h"

namespace moe {

// How a step is spread over the machine.
struct LaunchShape {
  int blocks = 1;
  int warpsPerBlock = 1;
  bool bulk = false;
  int describingWarps = 0;  // of a block, beside those: of a divided step, they describe rows
  bool straight = false;    // LL dispatch: own rows need no slot if they are delivered in the same step

  int warps() const { return blocks * (warpsPerBlock + describingWarps); }
};

// What one operation moves: enough to choose its shape.
struct Workload {
  Step step;
  int tokensMax;            // of the handle: decides whether latency or bandwidth counts
  int rows;                 // that this rank's warps share, at most
  std::uint32_t rowBytes;   // 0: no payload
  int sms;                  // 0: the backend's choice
  bool movesOnly = false;   // nothing is copied or summed here but what crosses between ranks
  std::int64_t bytes = 0;   // that cross between ranks, at most, of this rank's own tokens
  bool lowLatency = false;  // whose rows go through registers
};

// Memory that is not the backend's own, and not the caller's: a driver's queues, or the registers of an adapter that it
// has mapped; in tests these are memory too.
enum class HostPages { memory, registers, registersInMemory };

class Backend {
 public:
  virtual ~Backend() = default;

  virtual int kind() const noexcept = 0;    // a moeBackend value
  virtual int device() const noexcept = 0;  // CUDA ordinal, or -1
  virtual bool bulkCopies() const noexcept = 0;
  // Whether LL combines of rows that are made here land at their owners (ll_combine.h), or are read by them
  // (combine.h).
  virtual bool landingCombines() const noexcept = 0;

  // How many ranks share this rank's device: their kernels must fit beside each other.
  virtual void setSharers(int ranks) noexcept = 0;

  // Zeroed memory that steps use and no peer sees.
  virtual Memory allocatePrivate(std::size_t bytes, const Allocator& allocator) = 0;
  // Zeroed memory that steps and the host use.
  virtual Memory allocateHostVisible(std::size_t bytes) = 0;
  // Makes host memory of others reachable to steps, at its own address, until the result goes. The pages may be shared
  // with other users. Throws moeUnsupported if steps cannot reach it.
  virtual Memory shareWithSteps(void* begin, std::size_t bytes, HostPages kind) = 0;
  virtual void copyToPrivate(void* to, const void* from, std::size_t bytes) = 0;
  // Words of private or window memory, while peers may write them.
  virtual void readWords(std::uint64_t* to, const std::uint64_t* from, std::size_t count) = 0;
  // For one thread each. They allocate here, and never again: that could wait for a step that waits for them.
  virtual std::unique_ptr<WindowReader> makeReader(const std::uint8_t* window) = 0;
  virtual std::unique_ptr<WindowWriter> makeWriter(std::uint8_t* window) = 0;

  // Most warps of a route.
  virtual int routeWarpsMax() const noexcept = 0;
  virtual LaunchShape shapeFor(const Workload& work) const noexcept = 0;
  // How rows are cut so that the warps of `shape` share `rows` rows evenly.
  virtual Parts partsFor(const LaunchShape& shape, int rows, std::uint32_t rowBytes) const noexcept = 0;

  // Starts a step. On failure `what` says which CUDA call failed and why.
  virtual moeResult_t launch(Step step, const StepParams& params, const LaunchShape& shape, moeStream_t stream,
                             std::string* what) noexcept = 0;
  // True while `stream` records a graph instead of running.
  virtual bool capturing(moeStream_t stream) const noexcept = 0;
  // Waits until nothing of this rank runs any more.
  virtual void synchronize() noexcept = 0;
};

// NULL if there is no usable GPU or this build has no CUDA; `why` then says what is missing.
std::unique_ptr<Backend> makeCudaBackend(int device, Bulk bulk, std::string* why);
// Throws moeUnsupported if the options ask for what this processor has not got.
std::unique_ptr<Backend> makeHostBackend(const HostOptions& options = {});

}  // namespace moe
