// moecomm_sim runs simulated worlds from the command line, for long runs and to replay a seed that failed.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <utility>

#include <CLI/CLI.hpp>

#include "sim/worlds.h"

namespace {

using moe::sim::Mishap;
using moe::test::Protocol;

struct Options {
  Protocol protocol = Protocol::both;
  Mishap mishap = Mishap::any;
  std::uint64_t first = 1, seeds = 2000, seed = 0;
  moe::test::ScenarioLimits limits;
  std::pair<int, int> ranks{limits.ranksMin, limits.ranks};
  bool keepGoing = false;
};

// Returns the number of worlds that went wrong.
std::uint64_t runWorlds(const Options& options) {
  const bool replay = options.seed != 0;
  const std::uint64_t first = replay ? options.seed : options.first, end = replay ? first + 1 : first + options.seeds;
  std::uint64_t events = 0, failing = 0, operations = 0, faults = 0, seed = first;
  for (; seed < end && (options.keepGoing || failing == 0); ++seed) {
    const moe::sim::Verdict verdict =
        moe::sim::runWorld(seed, options.protocol, options.mishap, replay, options.limits);
    events += verdict.events;
    operations += static_cast<std::uint64_t>(verdict.operations);
    faults += static_cast<std::uint64_t>(verdict.faults);
    if (replay) fmt::print("{}", verdict.text);
    if (verdict.wrong.empty()) continue;
    ++failing;
    fmt::print("seed {} FAILED: {}\n", seed, verdict.wrong);
  }
  fmt::print("seeds {}..{}: {} failing, {} events, {} operations, {} of them with a fault that ends nothing\n", first,
             seed - 1, failing, events, operations, faults);
  return failing;
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("Runs seeded simulations of the protocols; ends with 1 if a world goes wrong");
  const std::map<std::string, Protocol> protocols{{"ht", Protocol::ht}, {"ll", Protocol::ll}, {"both", Protocol::both}};
  const std::map<std::string, Mishap> mishaps{{"any", Mishap::any},
                                              {"nothing", Mishap::nothing},
                                              {"death", Mishap::death},
                                              {"leave", Mishap::leave},
                                              {"abort", Mishap::abort},
                                              {"capacity", Mishap::capacity},
                                              {"bad-index", Mishap::badIndex},
                                              {"twice", Mishap::twice},
                                              {"stranger", Mishap::stranger},
                                              {"row-size", Mishap::rowSize},
                                              {"unready", Mishap::unready},
                                              {"recover", Mishap::recover},
                                              {"loss", Mishap::loss}};
  Options options;
  app.add_option("--protocol", options.protocol, "ht, ll or both")->transform(CLI::CheckedTransformer(protocols));
  app.add_option("--mishap", options.mishap, "what happens to the worlds")->transform(CLI::CheckedTransformer(mishaps));
  app.add_option("--first", options.first, "first seed");
  app.add_option("--seeds", options.seeds, "number of seeds");
  app.add_option("--seed", options.seed, "run this seed alone and print its steps");
  app.add_option("--ranks", options.ranks, "the least and the greatest number of ranks")->check(CLI::PositiveNumber);
  app.add_option("--operations", options.limits.operations, "the most operations")->check(CLI::PositiveNumber);
  app.add_option("--faults-one-in", options.limits.faultsOneIn,
                 "how rare a fault is that ends nothing, of each kind that an operation can have")
      ->check(CLI::PositiveNumber);
  app.add_flag("--decoders", options.limits.decodes, "most LL dispatches are plain ones, as decoders run them");
  app.add_flag("--keep-going", options.keepGoing, "do not stop at the first failing seed");
  CLI11_PARSE(app, argc, argv);
  options.limits.ranksMin = options.ranks.first;
  options.limits.ranks = std::max(options.ranks.first, options.ranks.second);
  return runWorlds(options) == 0 ? 0 : 1;
}
