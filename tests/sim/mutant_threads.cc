// A small run of the protocols on threads, for planted bugs. MOE_TEAM names the team of thread_runner.h. run_mutants.py
// builds it with ThreadSanitizer. It exits with 1 if a result is wrong.
#include <fmt/format.h>

#include "protocol/fixed_shape.h"
#include "protocol/handover.h"
#include "support/programs/thread_runner.h"

int main() {
  using namespace moe::test;
  if (handOver<MOE_TEAM>(20) != 0 || readBehindForEach<MOE_TEAM>() != 0) return 1;
  std::uint64_t seed = 1;
  for (const moe::Layout layout : {moe::Layout::expertMajor, moe::Layout::flat, moe::Layout::rankMajor}) {
    for (const bool lowLatency : {false, true}) {
      const bool slots = layout == moe::Layout::rankMajor;
      if (slots && !lowLatency) continue;
      for (const int ranks : {1, 2, 3, 4}) {
        if ((slots && ranks == 4) || (!lowLatency && ranks == 2)) continue;
        const int domainSize = ranks == 4 ? 2 : 0;
        FixedShape shape{.ranks = ranks,
                         .domainSize = domainSize,
                         .experts = ranks == 4 ? 8 : 6,
                         .topk = 3,
                         .rowBytes = 160,
                         .parts = 2,
                         .warps = 2,
                         .rounds = 2};
        shape.layout = layout;
        shape.lowLatency = lowLatency;
        shape.landing = ranks != 3;
        shape.awaitsRows = ranks > 2;
        shape.inSlots = slots;
        shape.split = slots && ranks == 3;
        shape.routesInside = slots || ranks == 2;  // two ranks: steps whose warps are blocks
        if (slots && ranks == 1) shape.warps = 1;  // which has all tokens, and counts them too
        Scenario scenario = makeFixedScenario(shape, seed++);
        const std::string wrong = runScenario<MOE_TEAM>(scenario);
        if (wrong.empty()) continue;
        fmt::print("{}\n", wrong);
        return 1;
      }
    }
  }
  return 0;
}
