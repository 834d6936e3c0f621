#include "support/program.h"

namespace moe::test {

void Program::addRoute(std::shared_ptr<Operation> operation, const HandleShape& handle, int warps) {
  struct Part {
    const char* name;
    Step step;
    int warps;
  };
  std::vector<Part> parts{{" count", Step::routeCount, handle.chunksMax}, {" scan", Step::routeScan, warps}};
  if (!handle.lowLatency) parts.push_back({" exchange", Step::routeExchange, warps});
  parts.push_back({" place", Step::routePlace, handle.chunksMax});
  for (int rank = 0; rank < nranks(); ++rank) {
    for (std::size_t i = 0; i < parts.size(); ++i) {
      Task task{operation->name() + parts[i].name, parts[i].step, parts[i].warps, {}, [] {}};
      task.prepare = [this, operation, rank, first = i == 0] {
        if (first) operation->start(rank, report_);
        return operation->params(rank, 0);
      };
      if (i + 1 == parts.size()) task.finish = [this, operation, rank] { operation->finish(rank, report_); };
      tasks_[static_cast<std::size_t>(rank)].push_back(std::move(task));
    }
  }
}

void Program::addStep(const std::shared_ptr<Operation>& operation, Step step, int phases, int warps) {
  const char* part = phases == kSendPhase ? " send" : phases == kReceivePhase ? " receive" : "";
  for (int rank = 0; rank < nranks(); ++rank) {
    Task task{operation->name() + part, step, warps, {}, [] {}};
    task.prepare = [this, operation, rank, phases] {
      if ((phases & kSendPhase) != 0) operation->start(rank, report_);
      return operation->params(rank, phases);
    };
    if ((phases & kReceivePhase) != 0) task.finish = [this, operation, rank] { operation->finish(rank, report_); };
    tasks_[static_cast<std::size_t>(rank)].push_back(std::move(task));
  }
}

std::string Program::describe() const {
  std::string text;
  for (const Task& task : tasks_[0]) text += "  " + task.name + " x" + std::to_string(task.warps) + "\n";
  return text;
}

}  // namespace moe::test
