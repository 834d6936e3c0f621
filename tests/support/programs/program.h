// A program: the list of steps that each rank runs, built from operations in the order in which a caller would make
// them. Runners (threads, the simulator) execute it. The operations check the results.
#pragma once

#include <algorithm>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "support/programs/operations.h"

namespace moe::test {

// One step of one rank.
struct Task {
  std::string name;
  Step step;
  int warps;
  int movers;                           // for a step that can be divided: see runNamedStep
  std::function<StepParams()> prepare;  // called when the rank comes to the step
  std::function<Watch()> watch;         // called after that: what is watched during the step
  std::function<void()> finish;         // called after the step, if the rank has not failed
  // The dispatch that follows a route by the same call, if there is one. Where the two may overlap, they do, as on a
  // GPU. Both are prepared before the route, and finished after the dispatch.
  std::shared_ptr<Task> dispatch;
};

// The parameters of a route and of the dispatch that follows it.
struct PreparedCall {
  StepParams route, dispatch;
  bool overlaps;  // the dispatch runs beside the route
};
PreparedCall prepareCall(const Task& route);

// The step that a rank runs for a task. Plain LL operations, which most decoders run, have separate steps
// (StepFamily::plain) that use the same words as the general ones. About half of the ranks that may take them do.
Step stepFor(const Task& task, const StepParams& params);

class Program {
 public:
  // `lost`: ranks that run nothing.
  explicit Program(int nranks, std::vector<int> lost = {})
      : tasks_(static_cast<std::size_t>(nranks)), report_(nranks), lost_(std::move(lost)) {}

  int nranks() const { return static_cast<int>(tasks_.size()); }
  const std::vector<Task>& tasks(int rank) const { return tasks_[static_cast<std::size_t>(rank)]; }
  Report& report() { return report_; }
  std::string describe() const;

  // Adds whole operations, or the two phases of a split one.
  void addRoute(const std::shared_ptr<Operation>& operation, int warps);
  void addStep(const std::shared_ptr<Operation>& operation, Step step, int phases, int warps);
  // Adds a dispatch to the route that was added last.
  void addToRoute(const std::shared_ptr<Operation>& operation, Step step, int phases, int warps);

 private:
  Task taskOf(int rank, const std::shared_ptr<Operation>& operation, Step step, int phases, int warps);
  bool isLost(int rank) const { return std::find(lost_.begin(), lost_.end(), rank) != lost_.end(); }

  std::vector<std::vector<Task>> tasks_;
  Report report_;
  std::vector<int> lost_;
};

}  // namespace moe::test
