// One handle of a case with everything it works on: routes, sources, outputs, and their expected content. Its
// operations are single calls of the library or of moe_perf's own work, in stream order. The runner decides when each
// one runs.
#pragma once

#include <array>
#include <cstdint>
#include <memory>

#include "moecomm.h"
#include "perf/moe_perf/bad_entry.h"
#include "perf/moe_perf/options.h"
#include "perf/moe_perf/plan.h"
#include "perf/payload/device.h"

namespace moe::perf {

// Throws std::runtime_error with the library's sentence.
void check(moeResult_t result, moeComm_t comm, const char* call);

// Window memory, or memory of the device.
class OutputMemory {
 public:
  OutputMemory() = default;
  OutputMemory(Device& device, moeComm_t comm, bool window, std::size_t bytes);
  OutputMemory(OutputMemory&& other) noexcept { *this = std::move(other); }
  OutputMemory& operator=(OutputMemory&& other) noexcept;
  ~OutputMemory();

  void* get() const { return memory_; }

 private:
  Device* device_ = nullptr;
  moeComm_t comm_ = nullptr;  // NULL: memory of the device
  void* memory_ = nullptr;
};

class Session {
 public:
  // `seed` differs between the sessions of a case.
  Session(const Options& options, Device& device, moeComm_t comm, const std::uint32_t* iteration, std::uint64_t seed,
          const Load& load);
  ~Session();
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  // The window memory of one session whose layout has this many rows.
  static std::int64_t windowBytes(const Options& options, std::int64_t layoutRows, int nranks);

  // Library calls. `source` picks the rows to send: those of the route's version, or equally many others.
  // `bad`: with the version's bad entry.
  void route(int version, bool bad = false);
  void dispatch(int source);
  void routeDispatch(int version, bool bad = false);  // in one call
  void combine(int version);
  void complete();

  // One handle's memory holds the expert rows of one version at a time.
  bool inSlots() const { return inSlots_; }

  // moe_perf's own work, with the payload of the current iteration.
  void fill(int source);
  // Computes the experts' rows from the payload of `iteration`, or from the current one. Rows without a cast carry
  // their payload themselves.
  void runExperts(int version, const std::uint32_t* iteration = nullptr);
  void verifyDispatch(int version, int stride, Findings* findings);
  // `bad`: nothing may have come.
  void verifyCombine(int version, int stride, Findings* findings, bool bad = false);

  // Compares moeHandleGetCounts with the plan and returns the number of wrong values. Waits for the stream.
  int wrongCounts(int version);

  // Iterations with a bad entry in their route. Whether there can be one; a check, in stream order, of the word that
  // says whether the route was refused; and a check of what the host hears when it was.
  bool mayFail(int version) const { return at(version).bad.exists(); }
  void verifyFault(bool bad, Findings* findings);
  int wrongFault(int version);

  // The memcpy baseline of the host backend: copies the rows that this rank sends, once per destination rank, over the
  // outputs.
  void copyLogicalRows(int version);

  const Plan& plan(int version) const { return versions_[static_cast<std::size_t>(version)].plan; }

 private:
  // Enough for the scales of this many rows.
  static std::int64_t scaleBytes(const Options& options, std::int64_t layoutRows, int nranks);
  const moeDispatchArgs_t& askDispatch(int source);
  struct Version {
    Plan plan;
    Buffer<std::int32_t> topkIdx;
    Buffer<float> topkWeights;
    Buffer<Entry> entries;
    Buffer<std::int32_t> entryOffsets;
    Buffer<RowSpec> specs;
    Buffer<Entry> specEntries;
    Buffer<std::int32_t> specExperts;
    Buffer<float> specWeights;
    Buffer<std::int32_t> specSources;
    Buffer<std::int32_t> expertOffsets;
    OutputMemory expertRows;  // none if the rows go to the handle's own memory
    // Without --faults-one-in they are empty.
    BadEntry bad;
    Buffer<std::int32_t> badIdx;     // topkIdx with the bad entry, if it is this rank's
    Buffer<std::int32_t> noEntries;  // entryOffsets if nothing comes
  };

  Version makeVersion(const Load& load, int version);
  void planFault(const Load& load, int number, Version& version);
  const std::int32_t* idsOf(int version, bool bad) const {
    const Version& route = at(version);
    return bad && route.bad.rank == rank_ ? route.badIdx.get() : route.topkIdx.get();
  }
  const Version& at(int version) const { return versions_[static_cast<std::size_t>(version)]; }
  PayloadOf payloadOf() const { return {seed_, iteration_}; }
  const void* arrivedRows() const { return inSlots_ ? view_.rows : outRows_.get(); }
  void* expertRows(int version) const { return combinesInSlots() ? view_.combineRows : at(version).expertRows.get(); }
  bool combinesInSlots() const { return inSlots_ && options_.wire == Wire::row; }
  // NULL without scales. The handle has memory for scales whenever the communicator has.
  SideArray<const float> arrivedSide() const {
    if (shape_.sideFloats == 0) return {};
    return sideArray(static_cast<const float*>(inSlots_ ? view_.side : outSide_.get()), !inSlots_, outRowCount_);
  }
  // The scales of `rows` rows; columns if `mayBeColumns` and the options ask for them.
  template <class T>
  SideArray<T> sideArray(T* first, bool mayBeColumns, std::size_t rows) const {
    if (!mayBeColumns || options_.side != Side::columns) return {first, shape_.sideFloats, 1};
    return {first, 1, static_cast<std::int64_t>(rows)};
  }
  void setPayload(int source);
  void makeHandle(int tokensMax);
  void allocateOutputs();
  ScaleAddress scaleAddress(const Version& version) const;
  ScaleAddress blockAddress(const Version& version) const;
  void verifyCast(const Version& version, Findings* findings);
  void verifyWords(const Version& version, const void* actual, const void* expected, std::size_t perRow,
                   Findings* findings);

  const Options& options_;
  Device& device_;
  moeComm_t comm_;
  const std::uint32_t* iteration_;
  std::uint64_t seed_;
  int rank_ = 0, nranks_ = 0;
  int domainSize_ = 0;
  bool lowLatency_ = false;
  RowShape shape_;
  std::array<Version, kVersions> versions_;
  std::array<Buffer<std::byte>, kVersions> sources_;
  std::array<Buffer<float>, kVersions> sourceSides_;
  // The arguments of the call that is made.
  moeDispatchArgs_t dispatch_ = MOE_DISPATCH_ARGS_INITIALIZER;
  moeCast_t cast_ = MOE_CAST_INITIALIZER;
  moeDescribe_t describe_ = MOE_DESCRIBE_INITIALIZER;
  moePayload_t payload_ = MOE_PAYLOAD_INITIALIZER;
  OutputMemory outRows_;
  OutputMemory outSide_;
  OutputMemory outScales_;                // with a cast; rows in slots have their scales behind them instead
  Buffer<std::int32_t> outBlockOffsets_;  // for EXPERT_MAJOR with scales in blocks
  bool inSlots_ = false;  // LL RANK_MAJOR: rows stay in the handle's memory, and combine reads them there
  moeHandleView_t view_ = MOE_HANDLE_VIEW_INITIALIZER;
  int slotCount_ = 0;            // nranks * tokensMax
  std::size_t outRowCount_ = 0;  // rows of the larger version
  Buffer<std::int32_t> outTopkIdx_;
  Buffer<float> outTopkWeights_;
  Buffer<std::int32_t> outSources_;
  Buffer<std::int32_t> outExpertOffsets_;
  Buffer<std::byte> combined_;
  const std::uint32_t* fault_ = nullptr;  // the handle's word
  Buffer<std::uint32_t> expectedFault_;   // without a bad entry, then with one; empty without --faults-one-in
  moeHandle_t handle_ = nullptr;
};

}  // namespace moe::perf
