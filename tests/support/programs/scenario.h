// Random worlds: a communicator, its handles and a program of operations on them, with at most one thing that goes
// wrong. One seed draws all of it. The simulator and the threaded protocol tests run them. judge() says whether a rank
// ended as the public header promises.
#pragma once

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "support/base/rng.h"
#include "support/programs/program.h"
#include "support/programs/tally_operation.h"

namespace moe::test {

enum class Protocol { ht, ll, both };

enum class Trouble {
  none,
  capacity,  // too small: an output, a staging area, or the rows or gradients of a combine
  badIndex,  // an index names no expert
  twice,     // a token names an expert twice
  stranger,  // a rank's handle differs from the others'
  rowSize,   // a rank dispatches longer rows than the others, or combines rows of another size or type
  unready,   // rows of an expert, for which a combine waits, are never made
};

struct ScenarioLimits {
  int ranksMin = 1, ranks = 9;
  int tokens = 24;
  int operations = 40;
  int warps = 4;
  bool decodes = false;  // LL handles allow the plain steps that most decoders run, and most dispatches are plain ones
  int faultsOneIn = 40;  // each kind of fault that the world survives strikes one in this many operations
  bool oneDomain = false;
};

class ScenarioBuilder;  // scenario_builder.h

struct Scenario {
  std::shared_ptr<ScenarioBuilder> builder;  // of a random world: draws its further programs
  std::unique_ptr<TestComm> comm;
  std::vector<std::unique_ptr<TestHandle>> handles;
  std::unique_ptr<OutputAreas> areas;
  std::unique_ptr<Program> program;
  std::vector<int> lost;  // ranks that the others go on without, ascending
  Trouble trouble = Trouble::none;
  int culprit = -1;
  std::int64_t missingWord = -1;  // the word of rows that are never made, in the form of Failure::index
  std::shared_ptr<std::vector<Counters>> counters = std::make_shared<std::vector<Counters>>();  // counters of a fixed
                                                                                                // world
  int tallies = 0;                 // steps that have added to the counters
  int operations = 0, faults = 0;  // `faults` of these operations have a fault that the world survives
  std::string text;                // describes the world

  bool isLost(int rank) const { return std::find(lost.begin(), lost.end(), rank) != lost.end(); }
  // Describes writes where nothing may be written.
  std::string findStrayWrite() const;
};

Scenario makeScenario(std::uint64_t seed, Protocol protocol, Trouble trouble, const ScenarioLimits& limits,
                      std::uint64_t timeoutNs);
// Gives a world that has recovered (settle_world.h) another random program, on the same communicator and handles.
void drawAgain(Scenario& world);

// How a rank ended.
struct Ending {
  bool finished = false;
  Failure failure{};
};

// Returns the errors of these endings under the scenario's trouble. Empty if there are none. Also makes the checks that
// are only possible at the end.
std::string judge(Scenario& scenario, const std::vector<Ending>& endings);

// A survivor's failure must lead to the rank that caused it: it names that rank, or one that failed because of it.
std::string followBlame(const std::vector<Ending>& endings, int rank, int cause);

}  // namespace moe::test
