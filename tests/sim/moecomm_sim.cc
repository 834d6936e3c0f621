// moecomm_sim: simulated worlds from the command line, for long runs and to replay a seed that failed.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <map>

#include "sim/worlds.h"

int main(int argc, char** argv) {
  CLI::App app("Runs seeded simulations of the protocols; ends with 1 if a world goes wrong");
  const std::map<std::string, moe::test::Protocol> protocols{
      {"ht", moe::test::Protocol::ht}, {"ll", moe::test::Protocol::ll}, {"both", moe::test::Protocol::both}};
  moe::test::Protocol protocol = moe::test::Protocol::both;
  std::uint64_t first = 1, seeds = 2000, seed = 0;
  bool keepGoing = false;
  app.add_option("--protocol", protocol, "ht, ll or both")->transform(CLI::CheckedTransformer(protocols));
  app.add_option("--first", first, "first seed");
  app.add_option("--seeds", seeds, "number of seeds");
  app.add_option("--seed", seed, "run this seed alone and print its steps");
  app.add_flag("--keep-going", keepGoing, "do not stop at the first failing seed");
  CLI11_PARSE(app, argc, argv);
  if (seed != 0) first = seed, seeds = 1;
  std::uint64_t events = 0, failing = 0;
  for (std::uint64_t s = first; s < first + seeds && (keepGoing || failing == 0); ++s) {
    const moe::sim::Verdict verdict = moe::sim::runWorld(s, protocol, seed != 0);
    events += verdict.events;
    if (seed != 0) fmt::print("{}", verdict.text);
    if (verdict.wrong.empty()) continue;
    ++failing;
    fmt::print("seed {} FAILED: {}\n", s, verdict.wrong);
  }
  fmt::print("seeds {}..{}: {} failing, {} events\n", first, first + seeds - 1, failing, events);
  return failing == 0 ? 0 : 1;
}
