// Times kernels of the ceilings. Several launches in a row form a CUDA graph, which all ranks replay together.
#pragma once

#include <functional>
#include <memory>
#include <type_traits>
#include <vector>

#include "perf/ceiling/ceiling_kernels.h"
#include "perf/moe_perf/group.h"
#include "perf/payload/device.h"

namespace moe::perf {

class CeilingClock {
 public:
  // The flags and their state must be zero.
  CeilingClock(Device& device, Group& group, const FlagJobs& flags);

  // Collective. Returns for each replay the microseconds of one of `launches` launches on the slowest rank. A replay
  // starts with an untimed barrier of all ranks. After it nobody waits, and a rank may be some launches ahead of the
  // others. `launch(i)` puts launch i on the stream. Nothing may be in flight on this machine's GPUs.
  std::vector<double> time(int launches, int replays, const std::function<void(int)>& launch);

 private:
  using Event = std::shared_ptr<std::remove_pointer_t<cudaEvent_t>>;
  using Graph = std::shared_ptr<std::remove_pointer_t<cudaGraphExec_t>>;

  static Event makeEvent();
  Graph capture(int launches, const std::function<void(int)>& launch);
  double replay(const Graph& graph);

  Device& device_;
  Group& group_;
  FlagJobs flags_;
  Event begin_;
  Event end_;
};

}  // namespace moe::perf
