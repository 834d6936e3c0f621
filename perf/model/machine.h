// The inputs of the model: a machine's rates and costs, and a workload. GB/s are 1e9 bytes per second and per rank, in
// one direction. docs/internals/scaling.md says where each number comes from.
#pragma once

#include <cstdint>
#include <string>

namespace moe::model {

enum class RowType : int { fp8, bf16 };
enum class Transport : int { ibgda, proxy };  // the poster of a rail's messages: the GPU, or a CPU thread

// How steps post to an adapter's queue: a warp calls for up to 32 puts to one rank.
struct Calls {
  double callUs = 0;  // time of one warp's call. 0: posting has a fixed cost per message, whoever posts
  double ringUs = 0;  // extra time of a call that rings
  int warps = 1;      // warps that post at the same time, each to its own rank
};

struct Machine {
  std::string name;
  int domainRanks = 8;          // ranks that load and store each other's memory
  double nvlinkGBs = 0;         // to the other ranks of the domain, as operations reach it
  double railGBs = 0;           // speed of the rank's own network adapter
  double startUs = 0;           // an operation that moves almost nothing, within a domain
  double railLatencyUs = 0;     // from a post to the flag's arrival on another machine
  double forwardLatencyUs = 0;  // from a flag's arrival to the next rank of the domain
  double postUs = 0;            // per message and rank, where `calls` does not apply
  Calls calls;                  // the cost where steps post by calls
};

struct Workload {
  int ranks = 64;
  int tokens = 128;  // tokens of each rank
  int hidden = 7168;
  int topk = 8;
  int experts = 0;      // 0: the smallest multiple of ranks that is at least 256
  int domainLimit = 0;  // most domains of a token (group-limited routing); 0: no limit
  RowType dispatchRow = RowType::fp8;
  RowType combineRow = RowType::bf16;

  int expertCount() const;
};

// An FP8 row is followed by one float per 128 columns.
std::int64_t rowBytes(RowType type, int hidden);

// Nodes of 8 GPUs with a 400 Gb/s rail each, and fabrics of 72 GPUs with the same rails.
Machine nodesOf8(Transport transport = Transport::ibgda);
Machine fabricsOf72(Transport transport = Transport::ibgda);
// The same machine with a fixed cost per message, for posting code that is not ours.
Machine withoutCalls(Machine machine);

// Throws std::invalid_argument with a sentence if the two do not fit together.
void check(const Machine& machine, const Workload& workload);

}  // namespace moe::model
