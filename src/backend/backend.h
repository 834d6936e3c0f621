// The services that a communicator needs from the machine: memory, and a way to run a step. The host backend runs steps
// in the call, on its thread and others. The cuda backend runs them as kernels on a stream.
#pragma once

#include <cstddef>
#include <memory>
#include <string>

#include "backend/memory.h"
#include "backend/options.h"
#include "backend/snapshot.h"
#include "backend/window_port.h"
#include "device/view/layout_args.h"
#include "device/view/steps.h"

namespace moe {

// How a step is spread over the machine.
struct LaunchShape {
  int blocks = 1;
  int warpsPerBlock = 1;
  bool bulk = false;
  int describingWarps = 0;     // per block, in addition to those: in a divided step they describe rows
  bool countingBlock = false;  // LL dispatch that routes: the last block counts, and moves no rows
  bool straight = false;       // LL dispatch: own rows skip the slots if the same step delivers them

  int warps() const { return blocks * (warpsPerBlock + describingWarps); }
};

// The work of one operation, as far as the choice of its shape needs it.
struct Workload {
  Step step;
  int tokensMax;              // that of the handle; it decides whether latency or bandwidth counts
  int rows;                   // most rows that this rank's warps share
  std::uint32_t rowBytes;     // 0: no payload
  int sms;                    // 0: the backend's choice
  bool movesOnly = false;     // only rows that cross between ranks move; no copies or sums here
  std::int64_t bytes = 0;     // most bytes that this rank's own tokens send between ranks
  bool lowLatency = false;    // rows go through registers
  bool waitsForRows = false;  // a combine waits for rows of experts
  bool split = false;         // there are several domains
  bool wholeRows = false;     // a block that makes a part of a row needs all of it
};

// Memory that belongs neither to the backend nor to the caller: a driver's queues, or the registers of an adapter that
// it has mapped. Tests use plain memory for both.
enum class HostPages { memory, registers, registersInMemory };

class Backend {
 public:
  virtual ~Backend() = default;

  virtual int kind() const noexcept = 0;    // a moeBackend value
  virtual int device() const noexcept = 0;  // CUDA ordinal, or -1
  virtual bool bulkCopies() const noexcept = 0;
  // Whether LL combines of rows made on this backend land at their owners (ll/combine.h). Otherwise the owners read
  // them (combine.h).
  virtual bool landingCombines() const noexcept = 0;
  // Whether this backend has the plain LL steps whose warps are blocks (StepFamily::plain).
  virtual bool hasPlainSteps() const noexcept = 0;
  // Whether a step may start while the one before it still runs, and wait for it later.
  virtual bool overlapsSteps() const noexcept = 0;

  // Ends the threads that run steps, for use when no step runs. The next step starts others.
  virtual void endThreads() noexcept {}

  // How many ranks share this rank's device. Their kernels must fit beside each other.
  virtual void setSharers(int ranks) noexcept = 0;

  // Zeroed memory that only steps use. No peer sees it.
  virtual Memory allocatePrivate(std::size_t bytes, const Allocator& allocator) = 0;
  // Zeroed memory for steps and the host.
  virtual Memory allocateHostVisible(std::size_t bytes) = 0;
  // Makes foreign host memory reachable for steps at its own address, as long as the result lives. Others may share the
  // pages. Throws moeUnsupported if steps cannot reach it.
  virtual Memory shareWithSteps(void* begin, std::size_t bytes, HostPages kind) = 0;
  virtual void copyToPrivate(void* to, const void* from, std::size_t bytes) = 0;
  // The same, in stream order: after the stream's earlier work and before its later work. `from` may be reused at once.
  // It must not be called while the stream records a graph. Throws moeCudaError.
  virtual void copyToPrivate(void* to, const void* from, std::size_t bytes, moeStream_t stream) = 0;
  // Reads words of private or window memory that peers may write at the same time.
  virtual void readWords(std::uint64_t* to, const std::uint64_t* from, std::size_t count) = 0;
  // Whether a step takes notably longer if it stores to the host's memory (decision 0126).
  virtual bool isFarFromHost() const noexcept = 0;
  // Copies words of private memory to host-visible memory, also while steps run and write them. It waits for no step,
  // and allocates nothing. False: the words have not come by `end`, and may come later.
  virtual bool bringWords(std::uint64_t* to, const std::uint64_t* from, std::size_t count, Deadline end) = 0;
  // Whether the program's kernels may be loaded at their first launch. On a GPU, such a load keeps the copies of
  // readers and writers waiting until steps end, while steps may wait for those copies (decision 0082).
  virtual bool loadsKernelsLazily() const noexcept = 0;
  // A reader or writer belongs to one thread. It allocates here and never again, because a later allocation could wait
  // for a step that waits for this thread.
  virtual std::unique_ptr<WindowReader> makeReader(const std::uint8_t* window) = 0;
  virtual std::unique_ptr<WindowWriter> makeWriter(std::uint8_t* window) = 0;

  // Makes a snapshot for up to `bytesMax` bytes of private memory, in whole words. On a GPU it copies `memory` once
  // here. It allocates here and never again, as readers do.
  virtual std::unique_ptr<Snapshot> makeSnapshot(const std::uint64_t* memory, std::size_t bytesMax) = 0;

  // The most warps of a route.
  virtual int routeWarpsMax() const noexcept = 0;
  // In a dispatch that routes, the most blocks without scratch memory for their tables (LlTables).
  virtual int tableBlocksMax() const noexcept = 0;
  virtual LaunchShape shapeFor(const Workload& work) const noexcept = 0;
  // How rows are cut so that the warps of `shape` share `rows` rows evenly.
  virtual Parts partsFor(const LaunchShape& shape, int rows, std::uint32_t rowBytes) const noexcept = 0;

  // Starts a step. On failure `what` names the failed CUDA call and the reason.
  virtual moeResult_t launch(Step step, const StepParams& params, const LaunchShape& shape, moeStream_t stream,
                             std::string* what) noexcept = 0;
  // True while `stream` records a graph instead of running.
  virtual bool capturing(moeStream_t stream) const noexcept = 0;
  // Waits until no step of this rank runs any more.
  virtual void synchronize() noexcept = 0;
};

// Waits until all work that was queued on a device has ended. -1: there is nothing to wait for.
void awaitDevice(int device) noexcept;

// Counts a dispatch layout in stream order. `device`: -1: the current one. Throws moeCudaError, or moeUnsupported in a
// build without CUDA.
void countLayout(const LayoutArgs& args, int device, moeStream_t stream);

// Returns NULL if there is no usable GPU or this build has no CUDA. `why` then says what is missing.
std::unique_ptr<Backend> makeCudaBackend(int device, Bulk bulk, std::string* why);
// Throws moeUnsupported if the options ask for something that this processor lacks.
std::unique_ptr<Backend> makeHostBackend(const HostOptions& options = {});

}  // namespace moe
