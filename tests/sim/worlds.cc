#include "sim/worlds.h"

#include <fmt/format.h>

#include "support/programs/settle_world.h"
#include "support/simulator/simulator.h"

namespace moe::sim {
namespace {

using test::Ending;
using test::Protocol;
using test::Scenario;
using test::Trouble;

constexpr std::uint64_t kTimeoutNs = 10'000'000'000;
// No rank may run longer than this without a failure. A stall is far shorter than the timeout, but a world may have a
// dozen long stalls in a row. One world in 10^4 takes more than a quarter of the timeout.
constexpr std::uint64_t kWorkNsMax = kTimeoutNs / 2;

Faults drawFaults(const Scenario& world, Mishap mishap, Rng& rng) {
  Faults faults;
  if (mishap == Mishap::abort) {
    faults.abortNs = 1 + rng.next() % 3'000'000;
    return faults;
  }
  const int rank = rng.below(world.comm->nranks());
  const auto task = static_cast<std::size_t>(rng.below(static_cast<int>(world.program->tasks(0).size())));
  if (mishap == Mishap::leave) {
    faults.leaver = rank;
    faults.leaveTask = task;
    return faults;
  }
  faults.deadRank = rank;
  faults.deadTask = task;
  faults.deadPause = rng.below(1 << rng.below(9));
  return faults;
}

// A rank that waits for one that has left ends soon after that, and names it.
std::string judgeLeaver(const Outcome& outcome, const Faults& faults, std::size_t rank) {
  const RankResult& result = outcome.ranks[rank];
  if (result.failure.peer != faults.leaver) return {};
  const std::uint64_t leftNs = outcome.ranks[static_cast<std::size_t>(faults.leaver)].endNs;
  const bool soon = result.failure.fault == Fault::left && result.endNs < leftNs + kWorkNsMax;
  return soon ? "" : fmt::format("rank {} waited for who has left; ", rank);
}

// A survivor has finished, or its failure leads to the rank that died or left. After an abort, every rank just stops.
std::string judgeSurvivors(const Outcome& outcome, const Faults& faults, const std::vector<Ending>& endings) {
  std::string wrong;
  for (std::size_t r = 0; r < outcome.ranks.size(); ++r) {
    const RankResult& result = outcome.ranks[r];
    if (result.died || result.left || result.finished) continue;
    if (faults.leaver >= 0) {
      wrong += followBlame(endings, static_cast<int>(r), faults.leaver) + judgeLeaver(outcome, faults, r);
      continue;
    }
    if (faults.deadRank >= 0 && faults.abortNs == 0) {
      wrong += followBlame(endings, static_cast<int>(r), faults.deadRank);
      continue;
    }
    if (!result.stopped || result.failure.ready != 0) wrong += fmt::format("rank {} did not just stop; ", r);
    if (result.endNs > faults.abortNs + kWorkNsMax) wrong += fmt::format("rank {} stopped late; ", r);
  }
  return wrong;
}

// No rank hangs. It works for a while and then waits at most one timeout. It may first have waited for ranks that did
// the same.
std::string judgeTimes(const Outcome& outcome) {
  std::string wrong;
  for (std::size_t r = 0; r < outcome.ranks.size(); ++r) {
    const RankResult& result = outcome.ranks[r];
    const std::uint64_t allowed = kWorkNsMax + (result.finished ? 0 : kTimeoutNs * outcome.ranks.size());
    if (result.endNs > allowed) wrong += fmt::format("rank {} ended only after {} ns; ", r, result.endNs);
  }
  return wrong;
}

Mishap drawMishap(Rng& rng) {
  const int kind = rng.below(16);
  return kind < 2    ? Mishap::death
         : kind == 2 ? Mishap::leave
         : kind < 10 ? static_cast<Mishap>(static_cast<int>(Mishap::abort) + kind - 3)
         : kind < 14 ? Mishap::nothing
         : kind < 15 ? Mishap::loss
                     : Mishap::recover;
}

Trouble troubleOf(Mishap mishap) {
  switch (mishap) {
    case Mishap::capacity:
      return Trouble::capacity;
    case Mishap::badIndex:
      return Trouble::badIndex;
    case Mishap::twice:
      return Trouble::twice;
    case Mishap::stranger:
      return Trouble::stranger;
    case Mishap::rowSize:
      return Trouble::rowSize;
    case Mishap::unready:
      return Trouble::unready;
    default:
      return Trouble::none;
  }
}

// Runs the world's program, and adds what there is to say about it.
void run(Scenario& world, const Faults& faults, Rng& rng, bool trace, Verdict& verdict) {
  const Outcome outcome = Simulator(*world.comm, *world.program, rng.next(), faults, trace).run();
  std::vector<Ending> endings;
  for (const RankResult& result : outcome.ranks) endings.push_back({result.finished, result.failure});
  verdict.wrong += outcome.defect + judgeTimes(outcome);
  verdict.events += outcome.events;
  verdict.lookUps = outcome.lookUps;
  const bool ends = faults.deadRank >= 0 || faults.leaver >= 0 || faults.abortNs != 0;
  if (ends) {
    verdict.wrong += judgeSurvivors(outcome, faults, endings) + world.findStrayWrite() + world.program->report().text();
  } else {
    verdict.wrong += judge(world, endings);
  }
}

// When ranks that will recover are told to give up: at a random time, at once or one after another. Most of them are
// then somewhere in their programs.
Faults drawStop(Rng& rng) {
  Faults faults;
  faults.abortNs = 1 + rng.next() % (std::uint64_t{65536} << rng.below(8));
  faults.abortSpreadNs = 1 + rng.next() % (std::uint64_t{1024} << rng.below(11));
  return faults;
}

// One to all but one of the living ranks die. One of them dies anywhere in a step, the others where they wait.
void drawLosses(Scenario& world, Faults& faults, Rng& rng) {
  const int nranks = world.comm->nranks();
  const int living = nranks - static_cast<int>(world.lost.size());
  if (living == 1) return;
  for (int more = rng.coin() ? 1 : rng.between(1, living - 1); more > 0;) {
    const int rank = rng.below(nranks);
    if (world.isLost(rank)) continue;
    world.lost.push_back(rank);
    --more;
    if (faults.deadRank >= 0 || rng.coin()) continue;
    faults.deadRank = rank;
    faults.deadTask = static_cast<std::size_t>(rng.below(1 + static_cast<int>(world.program->tasks(rank).size())));
    faults.deadPause = rng.below(1 << rng.below(9));
  }
  std::sort(world.lost.begin(), world.lost.end());
}

// The ranks stop and recover, one to three times. Each time they have another program to go on with. `loses`: some
// ranks are lost each time.
void runToRecovery(Scenario& world, bool loses, Rng& rng, bool trace, Verdict& verdict) {
  for (int rounds = rng.between(1, 3); rounds > 0; --rounds) {
    Faults faults = drawStop(rng);
    if (loses) drawLosses(world, faults, rng);
    run(world, faults, rng, trace, verdict);
    verdict.wrong += test::settleWorld(world);
    test::drawAgain(world);
  }
}

}  // namespace

Verdict runWorld(std::uint64_t seed, Protocol protocol, Mishap mishap, bool trace, const test::ScenarioLimits& limits) {
  Rng rng(seed);
  if (mishap == Mishap::any) mishap = drawMishap(rng);
  test::ScenarioLimits own = limits;
  own.oneDomain |= mishap == Mishap::loss && protocol != Protocol::ll;  // rails need all ranks
  if (mishap == Mishap::loss) {
    own.ranksMin = std::max(own.ranksMin, 2);
    own.faultsOneIn = std::min(own.faultsOneIn, 10);  // some entries for lost ranks would be faults
  }
  Scenario world = makeScenario(rng.next(), protocol, troubleOf(mishap), own, kTimeoutNs);
  const bool ends = mishap == Mishap::death || mishap == Mishap::leave || mishap == Mishap::abort;
  const Faults faults = ends ? drawFaults(world, mishap, rng) : Faults{};
  Verdict verdict;
  if (mishap == Mishap::recover || mishap == Mishap::loss)
    runToRecovery(world, mishap == Mishap::loss, rng, trace, verdict);
  run(world, faults, rng, trace, verdict);
  verdict.text = world.text;
  verdict.operations = world.operations;
  verdict.faults = world.faults;
  return verdict;
}

}  // namespace moe::sim
