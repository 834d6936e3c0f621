// One kind of traffic of the ceilings on one rank: the lists that its kernels work through, its launches, and the check
// that every byte has arrived.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "perf/ceiling/ceiling_kernels.h"
#include "perf/ceiling/ceiling_plan.h"
#include "perf/payload/device.h"

namespace moe::perf {

// How the bytes move.
struct CeilingVariant {
  int stages;  // stages of bulk copies; 0: plain loads and stores of 16 bytes
  int warps;   // per multiprocessor

  std::string name(int multiprocessors) const;
};

enum class MoveKind { push, pull, pullSums };

struct MoveSetup {
  MoveKind kind;
  std::string name;
  RowShape shape;
  PayloadOf payloadOf;  // the sources' content: row i of rank r is filled like token i of source r
  int tokens;
  int destinationsPerToken;
  Addresses from;      // each rank's source; a push uses only this rank's
  Addresses to;        // each rank's target; a pull uses only this rank's
  std::size_t target;  // size of this rank's target
};

// The rows of one version of the route: what this rank moves, and what its target must then hold.
struct MoveRows {
  std::vector<RowCopy> copies;
  std::vector<RowSpec> arrivals;
};

class CeilingMove {
 public:
  CeilingMove(Device& device, int rank, MoveSetup setup, std::vector<MoveRows> versions);

  const std::string& name() const { return setup_.name; }
  std::vector<CeilingVariant> variants(bool bulk, bool fewTokens) const;

  // Makes the lists for a variant. Allocates.
  void prepare(const CeilingVariant& variant, int multiprocessors);
  // Launches what was prepared. Throws moe::Error.
  void launch(int version);
  // Erases this rank's target, so that no byte of an earlier launch remains. Call it on all ranks before a checked
  // launch.
  void clear();
  // The number of wrong elements in this rank's target after the launch.
  unsigned long long countWrong(int version);

 private:
  struct Version {
    MoveRows rows;
    Buffer<RowSpec> arrivals;
    Buffer<std::int32_t> arrivalOffsets;  // by token, for sums
    Parts parts{1, 0};
    int blocks = 1;
    Buffer<std::uint64_t> table;
    Buffer<BulkCopy> copies;
  };

  std::int64_t rowsOf(const Version& version) const;
  std::uint32_t rowBytes() const { return static_cast<std::uint32_t>(setup_.shape.rowBytes()); }
  std::uint8_t* target() const;
  void prepareTable(Version& version);
  void prepareCopies(Version& version);
  PullJobs pullJobs(const Version& version) const;

  Device& device_;
  int rank_;
  MoveSetup setup_;
  std::vector<Version> versions_;
  int width_;  // the most sinks or sources of a row
  CeilingVariant variant_{0, 1};
  Buffer<Findings> findings_;
};

}  // namespace moe::perf
