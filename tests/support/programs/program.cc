#include "support/programs/program.h"

#include "support/base/rng.h"

namespace moe::test {

void Program::addRoute(const std::shared_ptr<Operation>& operation, int warps) {
  for (int rank = 0; rank < nranks(); ++rank) {
    if (isLost(rank)) continue;
    Task task{operation->name(), Step::route, warps, 0, {}, [] { return Watch{}; }, {}, {}};
    task.prepare = [this, operation, rank] {
      operation->start(rank, report_);
      return operation->params(rank, 0);
    };
    task.finish = [this, operation, rank] { operation->finish(rank, report_); };
    tasks_[static_cast<std::size_t>(rank)].push_back(std::move(task));
  }
}

Task Program::taskOf(int rank, const std::shared_ptr<Operation>& operation, Step step, int phases, int warps) {
  const char* part = phases == kSendPhase ? " send" : phases == kReceivePhase ? " receive" : "";
  const auto tasks = static_cast<int>(tasks_[static_cast<std::size_t>(rank)].size());
  const bool divided = warps > 1 && (tasks + rank) % 2 != 0;  // differs between ranks
  Task task{operation->name() + part, step, warps, divided ? (warps + 1) / 2 : 0, {}, {}, [] {}, {}};
  task.prepare = [this, operation, rank, phases] {
    if ((phases & kSendPhase) != 0) operation->start(rank, report_);
    return operation->params(rank, phases);
  };
  task.watch = [this, operation, rank, phases] { return operation->watch(rank, phases, report_); };
  if ((phases & kReceivePhase) != 0) task.finish = [this, operation, rank] { operation->finish(rank, report_); };
  return task;
}

void Program::addStep(const std::shared_ptr<Operation>& operation, Step step, int phases, int warps) {
  for (int rank = 0; rank < nranks(); ++rank) {
    if (isLost(rank)) continue;
    tasks_[static_cast<std::size_t>(rank)].push_back(taskOf(rank, operation, step, phases, warps));
  }
}

void Program::addToRoute(const std::shared_ptr<Operation>& operation, Step step, int phases, int warps) {
  for (int rank = 0; rank < nranks(); ++rank) {
    if (isLost(rank)) continue;
    tasks_[static_cast<std::size_t>(rank)].back().dispatch =
        std::make_shared<Task>(taskOf(rank, operation, step, phases, warps));
  }
}

namespace {

// Half of the ranks.
bool draws(const StepParams& p, std::uint32_t bytes, int tokens) {
  const auto rank = static_cast<std::uint64_t>(p.comm.rank);
  return mix(rank + static_cast<std::uint64_t>(tokens) * 64, std::uint64_t{bytes} + p.handle.ticket) % 2 != 0;
}

}  // namespace

bool takesPlainStep(const StepParams& p) {
  return routesPlainly(p) && draws(p, p.dispatch.rowBytes, p.dispatch.tokens);
}

bool asksForArrays(const StepParams& p) {
  return takesPlainStep(p) && draws(p, p.dispatch.rowBytes + 1, p.dispatch.tokens);
}

// Most ranks that may overlap do.
PreparedCall prepareCall(const Task& route) {
  PreparedCall call{route.prepare(), route.dispatch->prepare(), false};
  call.overlaps = mayRunBeside(route.dispatch->step, call.dispatch) && (call.dispatch.comm.rank + route.warps) % 4 != 0;
  call.route.route.followed = call.dispatch.dispatch.besideRoute = call.overlaps ? 1 : 0;
  return call;
}

Step stepFor(const Task& task, const StepParams& p) {
  if (task.step == Step::llRouteDispatch && takesPlainStep(p)) return plainDispatchStep(p);
  const auto takes = [&] { return draws(p, p.combine.rowBytes, p.combine.tokens); };
  if (task.step == Step::combine && combinesFromSlots(p) && takes()) return Step::llSlotCombine;
  if (task.step == Step::combineCoded && codesInSlots(p) && takes()) return Step::llSlotCoded;
  if (task.step == Step::combineWaves && takes()) return Step::combine;
  if (task.step == Step::combineWavesCoded && (p.combine.ownRows != 0 || takes())) return Step::combineCoded;
  const bool lands = task.step == Step::llCombine || task.step == Step::llCombineCoded;
  if (lands && landsPlainly(p) && takes()) return plainCombineStep(p);
  return task.step;
}

std::string Program::describe() const {
  std::string text;
  const auto some = std::find_if(tasks_.begin(), tasks_.end(), [](const auto& tasks) { return !tasks.empty(); });
  if (some == tasks_.end()) return text;
  for (const Task& task : *some) text += "  " + task.name + " x" + std::to_string(task.warps) + "\n";
  return text;
}

}  // namespace moe::test
