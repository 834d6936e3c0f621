// moe_perf --transport-test: measures the transport between domains from each rank to each rank of another domain, one
// pair after the other, without any step of the library. It uses host memory, because the CPU cannot post from GPU
// memory.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "perf/moe_perf/group.h"
#include "perf/moe_perf/options.h"

namespace moe::perf {

struct PutSpeed {
  std::uint32_t bytes = 0;   // bytes of a put
  double putsPerSecond = 0;  // for puts of that size, until a word behind them has been answered

  double gigabytesPerSecond() const { return putsPerSecond * bytes * 1e-9; }
};

struct PairResult {
  int from = 0, to = 0;
  int rounds = 0, wrongRounds = 0;  // rounds in which not all rows had arrived correctly when their word had
  std::vector<double> roundTrips;   // us for a word there and one back
  std::vector<PutSpeed> speeds;     // by size, 64 bytes to 8 MiB
};

// The same on every rank.
struct TransportResult {
  int nranks = 0, domainSize = 0;
  std::string transport;
  std::vector<PairResult> pairs;

  bool correct() const;
};

// Collective. `say` is called with each next stage. Throws std::runtime_error with the pair if it fails.
TransportResult testTransport(const Options& options, Group& group, const std::function<void(const std::string&)>& say);

}  // namespace moe::perf
