// Random worlds: a communicator, its handles and a program of operations on them, all drawn from one seed, with at most
// one thing that goes wrong. Both the simulator and the threaded protocol tests run them. judge() says whether a rank
// ended as the public header promises.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "support/program.h"
#include "support/rng.h"

namespace moe::test {

enum class Protocol { ht, ll, both };

enum class Trouble {
  none,
  capacity,  // an output is too small, a staging area, or the rows or gradients of a combine
  badIndex,  // an index names no expert
  twice,     // a token names an expert twice
  stranger,  // a rank's handle is not like the others'
  rowSize,   // a rank dispatches longer rows than the others, or combines rows of another size or type
};

struct ScenarioLimits {
  int ranks = 9;
  int tokens = 24;
  int operations = 40;
  int warps = 4;
  bool domains = true;  // more than one in half of the worlds
};

struct Scenario {
  std::unique_ptr<TestComm> comm;
  std::vector<std::unique_ptr<TestHandle>> handles;
  std::unique_ptr<OutputAreas> areas;
  std::unique_ptr<Program> program;
  Trouble trouble = Trouble::none;
  int culprit = -1;
  bool lowLatencyTrouble = false;      // it is an operation of a LL handle
  bool troubleSpreads = false;         // ranks may end by the end of others that looked first
  std::shared_ptr<Operation> refused;  // of Trouble::capacity
  Fault refusal = Fault::capacity;     // what it ends with
  std::string text;                    // what the world is made of

  // What was written where nothing may be written.
  std::string findStrayWrite() const;
};

Scenario makeScenario(std::uint64_t seed, Protocol protocol, Trouble trouble, const ScenarioLimits& limits,
                      std::uint64_t timeoutNs);

// How a rank ended.
struct Ending {
  bool finished = false;
  Failure failure{};
};

// Empty if the scenario's trouble must lead to these endings; else what is wrong. Calls the checks that only make sense
// at the end.
std::string judge(Scenario& scenario, const std::vector<Ending>& endings);

// A survivor's failure must lead to the rank that caused it: it names that rank, or one that failed because of it.
std::string followBlame(const std::vector<Ending>& endings, int rank, int cause);

}  // namespace moe::test
