#include "perf/moe_perf/options.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <stdexcept>

#include <CLI/CLI.hpp>

#include "moecomm.h"
#include "perf/moe_perf/option_rules.h"
#include "perf/moe_perf/token_counts.h"
#include "tools/command_line.h"

namespace moe::perf {
namespace {

constexpr std::size_t kCasesMax = 1000;

template <class Value>
using Names = std::map<std::string, Value>;

const Names<std::int32_t> kBackends = {{"auto", moeBackendAuto}, {"host", moeBackendHost}, {"cuda", moeBackendCuda}};
const Names<std::int32_t> kModes = {{"auto", moeModeAuto}, {"ht", moeModeHt}, {"ll", moeModeLl}};
const Names<std::int32_t> kLayouts = {{"flat", moeLayoutFlat},
                                      {"expert-major", moeLayoutExpertMajor},
                                      {"expert-major-padded", moeLayoutExpertMajorPadded},
                                      {"rank-major", moeLayoutRankMajor}};
const Names<Format> kFormats = {
    {"bf16", Format::bf16}, {"fp16", Format::fp16}, {"fp32", Format::fp32}, {"fp8", Format::fp8}};
const Names<Cast> kCastNames = [] {
  Names<Cast> names = {{"none", Cast::none}};
  for (const NamedCast& named : kCasts) names[named.name] = named.cast;
  return names;
}();
const Names<Wire> kWires = {{"row", Wire::row},
                            {"fp8", Wire::fp8},
                            {"fp8-block", Wire::fp8Block},
                            {"nvfp4", Wire::nvfp4},
                            {"logfmt10", Wire::logfmt10}};
const Names<Side> kSides = {{"array", Side::array}, {"rows", Side::rows}, {"columns", Side::columns}};
const Names<std::int32_t> kScales = {
    {"row-major", moeScalesRowMajor}, {"token-contiguous", moeScalesTokenContiguous}, {"128x4", moeScales128x4}};
const Names<Routing> kRoutings = {{"uniform", Routing::uniform},
                                  {"zipf", Routing::zipf},
                                  {"group-limited", Routing::groupLimited},
                                  {"one-rank", Routing::oneRank},
                                  {"empty", Routing::empty}};
const Names<std::int32_t> kTransports = {
    {"auto", 0}, {"tcp", moeTransportTcp}, {"verbs", moeTransportVerbs}, {"ibgda", moeTransportIbgda}};

const Names<Across> kAcross = {{"none", Across::none}, {"mode", Across::mode},     {"layout", Across::layout},
                               {"sms", Across::sms},   {"format", Across::format}, {"wire", Across::wire}};

template <class Value>
std::string nameOf(const Names<Value>& names, Value value) {
  for (const auto& [name, other] : names) {
    if (other == value) return name;
  }
  return "?";
}

using tools::addChoice;
using tools::wholeNumber;

// Parses the words of --tokens one by one.
std::vector<int> tokenCounts(const std::vector<std::string>& words) {
  std::vector<int> counts;
  for (const std::string& word : words) {
    try {
      const std::vector<int> more = parseTokenCounts(word);
      counts.insert(counts.end(), more.begin(), more.end());
    } catch (const std::invalid_argument& error) {
      throw CLI::ValidationError("--tokens", error.what());
    }
  }
  if (counts.size() > kCasesMax) {
    throw CLI::ValidationError("--tokens", fmt::format("{} cases, at most {} allowed", counts.size(), kCasesMax));
  }
  return counts;
}

void declareShape(CLI::App& app, Options& options) {
  addChoice(app, "--backend", options.backend, kBackends,
            "where ranks keep their rows; auto is cuda if there are GPUs");
  addChoice(app, "--mode", options.mode, kModes, "high throughput, low latency, or chosen by token count");
  addChoice(app, "--layout", options.layout, kLayouts, "of the dispatched rows");
  app.add_option_function<std::vector<std::string>>(
         "--tokens", [&options](const std::vector<std::string>& words) { options.tokens = tokenCounts(words); },
         "tokens per rank, one case each: numbers, or ranges such as 1:4096:x2 (doubling; also 1:4096) and "
         "512:4096:+512 (in steps)")
      ->delimiter(',')
      ->type_name("LIST")
      ->default_str("128");
  app.add_option("--hidden", options.hidden, "columns of a row")->check(wholeNumber(1))->capture_default_str();
  app.add_option("--topk", options.topk, "experts per token")->check(wholeNumber(1, 32))->capture_default_str();
  app.add_option("--experts", options.experts, "experts over all ranks")->check(wholeNumber(1))->capture_default_str();
  addChoice(app, "--format", options.format, kFormats,
            "row type; fp8 is e4m3 bytes with an fp32 scale per 128 columns as side payload, combined in bf16");
  addChoice(app, "--side", options.side, kSides,
            "how the scales of --format fp8 travel: as one array, or as a payload that lies in rows or in columns");
  addChoice(app, "--cast", options.cast, kCastNames,
            "casts the rows on their way: to e4m3 with a scale per 128 columns (fp8: fp32, fp8-ue8m0 and "
            "fp8-pow2: powers of two), to mxfp8 or mxfp4 (per 32 columns), to nvfp4 (per 16)");
  addChoice(app, "--scales", options.scales, kScales,
            "order of a cast's scales in the output: those of a row together, those of a column block, or 128x4: "
            "blocks of 128 rows, as block-scaled tensor cores load them");
  addChoice(app, "--wire", options.wire, kWires,
            "format in which the rows of a combine travel: the row type, e4m3 without or with an fp32 scale per 128 "
            "columns, nvfp4, or logfmt10; results are then checked against the errors of the format");
  app.add_option("--weights", options.weights,
                 "where rows are multiplied by the weights: in combine (apply) or by the expert (applied)")
      ->check(CLI::IsMember({"auto", "apply", "applied"}))
      ->capture_default_str();
  app.add_option("--window", options.window, "1: outputs in window memory; 0: in the caller's memory")
      ->check(wholeNumber(0, 1))
      ->capture_default_str();
  app.add_option("--describe", options.describe,
                 "1: dispatch also fills arrays with the experts, weights and sources of the rows; 0: rows alone")
      ->check(wholeNumber(0, 1))
      ->capture_default_str();
}

void declareRouting(CLI::App& app, Options& options) {
  addChoice(app, "--routing", options.routing, kRoutings,
            "which experts get the tokens; group-limited: the best experts of the best --groups-per-token of --groups");
  app.add_option(
         "--routing-file", options.routingPath,
         "routes of a real model instead: a file of numpy.save with expert ids, int32 or int64, of shape "
         "[steps, ranks, tokens, topk] or [ranks, tokens, topk], -1 for an unused entry. A run takes two steps, "
         "which --seed chooses, and the first --tokens tokens of each rank")
      ->check(CLI::ExistingFile);
  app.add_option("--groups", options.groups, "groups of experts, for --routing group-limited")
      ->check(wholeNumber(1))
      ->capture_default_str();
  app.add_option("--groups-per-token", options.groupsPerToken, "most groups that a token's experts come from")
      ->check(wholeNumber(1))
      ->capture_default_str();
  app.add_option("--seed", options.seed, "seed of routes and payloads")->capture_default_str();
}

void declareRanks(CLI::App& app, Options& options) {
  app.add_option("--ranks-as-threads", options.threads, "run this many ranks as threads; default: one rank per process")
      ->check(wholeNumber(1, 1024));
  app.add_option(
         "--domain-size", options.domainSize,
         "ranks that reach each other by loads and stores; --transport reaches the others; 0: the ranks of a host")
      ->check(wholeNumber(0));
  addChoice(app, "--transport", options.transport, kTransports,
            "what carries data between domains; auto is the fastest that works");
  app.add_option("--sms", options.sms, "multiprocessors per call; 0: the library's choice")->check(wholeNumber(0));
  app.add_option("--timeout-ms", options.timeoutMs, "longest wait for another rank; 0: the library's default")
      ->check(wholeNumber(0));
}

void declareMeasuring(CLI::App& app, Options& options) {
  app.add_option("--iters", options.iters, "iterations, timed and verified")
      ->check(wholeNumber(1, 1000000))
      ->capture_default_str();
  app.add_option("--timed", options.timed, "timed iterations; default: as many as --iters")
      ->check(wholeNumber(1, 1000000));
  app.add_option("--warmup", options.warmup, "iterations before the timed ones")
      ->check(wholeNumber(0, 1000000))
      ->capture_default_str();
  app.add_option(
         "--chain", options.chain,
         "how many dispatches, combines, pairs or whole steps run back to back in one timed sample; the sample's "
         "time is their mean")
      ->check(wholeNumber(1, 1000))
      ->capture_default_str();
  app.add_option("--verify-every", options.verifyEvery,
                 "check every element in each n-th iteration and in the first and last, and a sample in the others")
      ->check(wholeNumber(1))
      ->capture_default_str();
  app.add_flag("--graph", options.graph, "replay captured CUDA graphs; a step's route is inside its graph");
  app.add_flag("--interleave", options.interleave, "two handles: dispatch A, dispatch B, combine A, combine B");
  app.add_flag("--send-only", options.sendOnly, "start each operation with moeSendOnly and finish it with moeComplete");
  app.add_flag(
      "--ceiling", options.ceiling,
      "also measure bare kernels that only move the same rows between the same ranks, and print results as shares "
      "of their speed; needs GPUs and at least two ranks");
}

void declareOtherTests(CLI::App& app, Options& options) {
  app.add_option(
         "--soak", options.soak,
         "run this many verified iterations of route, dispatch and combine on one communicator, in shapes drawn from "
         "--seed. --tokens, --hidden, --topk and --experts are the largest sizes, --mode auto uses both modes, and "
         "--graph may be given. Layout, format, routing and the other options are drawn")
      ->check(wholeNumber(1, 1000000000));
  app.add_option("--faults-one-in", options.faultsOneIn,
                 "with --soak: one iteration in this many, drawn from --seed, has a route with a bad expert id on one "
                 "rank. It must deliver nothing on all ranks, and the next iteration must be right")
      ->check(wholeNumber(1, 1000000000));
  app.add_flag(
      "--transport-test", options.transportTest,
      "test the transport itself: order, latency, rate and bandwidth of puts between the host memory of any two "
      "ranks of different domains (of one rank each, unless --domain-size is given)");
  app.add_option("--tune", options.tune,
                 "measure steps in both modes, by default with 1 to 512 tokens, and write the number of bytes up to "
                 "which --mode auto should take LL to this file. Jobs take it by MOECOMM_TUNING")
      ->type_name("FILE");
  app.add_flag("--plant-wrong", options.plantWrong,
               "with --transport-test: spoil a byte of a row before it is sent, to show that the test finds it");
}

void declareReport(CLI::App& app, Options& options) {
  app.add_flag("--verbose", options.verbose,
               "all columns: minimum, median and 99th percentile of every time, and bytes");
  app.add_flag("--per-rank", options.perRank,
               "below each line of the table: every rank's own medians, in microseconds; also in --json");
  app.add_option("--json", options.json,
                 "file for the report of rank 0, opened before anything runs. With - it goes to standard output, and "
                 "the table to "
                 "standard error")
      ->type_name("FILE");
  app.add_option("--csv", options.csv, "the same as a table, one line per case")->type_name("FILE");
  app.add_option("--plot", options.plot, "picture (SVG) of times and GB/s over tokens, with ceilings if measured")
      ->type_name("FILE");
  app.add_option("--compare", options.compare,
                 "older report (--json): print a table of old and new times of the same cases")
      ->type_name("FILE");
  app.add_option("--compare-limit", options.compareLimit,
                 "exit with 1 if the median of a pair or a step grew by more, or if a case could not be compared")
      ->check(CLI::Range(0.0, 1e6))
      ->type_name("PERCENT");
  addChoice(app, "--across", options.across, kAcross, "with --compare: also compare cases that differ in this alone");
  app.add_option("--from", options.from, "plot or compare the cases of these reports (--json); nothing is run")
      ->delimiter(',')
      ->type_name("FILES");
}

// Adds a group of options. The help shows what `declare` adds under one heading.
void addGroup(CLI::App& app, const std::string& name, Options& options, void (*declare)(CLI::App&, Options&)) {
  app.option_defaults()->group(name);
  declare(app, options);
}

void declareAll(CLI::App& app, Options& options) {
  addGroup(app, "What is run", options, declareShape);
  addGroup(app, "Routing", options, declareRouting);
  addGroup(app, "Ranks", options, declareRanks);
  addGroup(app, "Measuring and verifying", options, declareMeasuring);
  addGroup(app, "Instead of cases", options, declareOtherTests);
  addGroup(app, "Report", options, declareReport);
}

tools::ProgramNotes notes() {
  return {
      {{"0", "all results were correct"},
       {"1", "a result was wrong, a rank failed, or --compare-limit was exceeded"},
       {"2", "an option is invalid, or a report could not be opened"}},
      {{"MOECOMM_*", "settings of the library; options take precedence"},
       {"MOECOMM_RANK, RANK, ...", "the place of this rank, set by the launcher"}},
      {"moerun -n 4 moe_perf --mode ht --layout expert-major --tokens 512:8192:x2",
       "moerun -n 4 moe_perf --mode ll --tokens 1,8,128 --graph --json ll.json",
       "moe_perf --ranks-as-threads 2 --backend host --tokens 16 --hidden 1024",
       "moerun -n 4 moe_perf --layout flat --hidden 7168 --tune cluster.tuning",
       "moe_perf --from ht.json,ll.json --plot modes.svg", "moe_perf --from ll.json --compare ht.json --across mode"}};
}

// With --from nothing runs: options for a run would be ignored without a word.
void refuseRunsFrom(const CLI::App& app) {
  static const std::set<std::string> kTaken = {"--from",          "--plot",   "--compare",
                                               "--compare-limit", "--across", "--verbose"};
  for (const CLI::Option* option : app.get_options()) {
    if (option->count() == 0 || kTaken.count(option->get_name()) > 0) continue;
    throw CLI::ValidationError(fmt::format("--from runs nothing: it cannot be combined with {}", option->get_name()));
  }
}

void checkTogether(const CLI::App& app, const Options& options) {
  if (!options.from.empty()) refuseRunsFrom(app);
  if (const std::string sentence = brokenRule(options); !sentence.empty()) throw CLI::ValidationError(sentence);
}

// Numbers of tokens to find the best threshold among.
void sortTunedTokens(const CLI::App& app, Options& options) {
  if (options.tune.empty()) return;
  if (app.count("--tokens") == 0) options.tokens = parseTokenCounts("1:512:x2");
  std::sort(options.tokens.begin(), options.tokens.end());
  options.tokens.erase(std::unique(options.tokens.begin(), options.tokens.end()), options.tokens.end());
}

void readRoutingFile(Options& options) {
  if (options.routingPath.empty()) return;
  try {
    options.routingFile = std::make_shared<const RoutingFile>(RoutingFile::read(options.routingPath));
  } catch (const std::runtime_error& error) {
    throw CLI::ValidationError(error.what());
  }
  options.routing = Routing::file;
}

}  // namespace

bool Options::expertMajor() const {
  return layout == moeLayoutExpertMajor || layout == moeLayoutExpertMajorPadded;
}

bool Options::staysInSlots() const {
  return mode == moeModeLl && layout == moeLayoutRankMajor && window != 0;
}

ExpertStyle Options::style() const {
  if (!expertMajor()) return ExpertStyle::summed;
  return weights == "applied" ? ExpertStyle::applied : ExpertStyle::apply;
}

RowShape Options::rowShape() const {
  const int blocks = (hidden + kScaleColumns - 1) / kScaleColumns;
  return {format, hidden, format == Format::fp8 ? (blocks + 3) / 4 * 4 : 0};
}

int Options::scaleWords() const {
  const int blocks = hidden / castBlockColumns(cast);
  return cast == Cast::none ? 0 : castScalesAreFloats(cast) ? blocks : (blocks + 3) / 4;
}

// Scales travel by tiles of 512 columns.
int Options::castRowBytes() const {
  const int tiles = (hidden + 511) / 512, blocks = 512 / castBlockColumns(cast);
  return codeBytes() + (tiles * blocks * (castScalesAreFloats(cast) ? 4 : 1) + 15) / 16 * 16;
}

int Options::combineTravellingBytes() const {
  switch (wire) {
    case Wire::fp8:
      return hidden;
    case Wire::fp8Block:
      return hidden + (hidden / 32 + 15) / 16 * 16;
    case Wire::nvfp4:
      return hidden / 2 + (hidden / 16 + 15) / 16 * 16 + 16;
    case Wire::logfmt10:
      return hidden / 4 * 5 + (hidden / 32 + 15) / 16 * 16;
    default:
      return combineRowBytes();
  }
}

int Options::reportsOnStandardOutput() const {
  int count = 0;
  for (const std::string& path : {json, csv, plot}) count += path == kStandardOutput ? 1 : 0;
  return count;
}

int Options::tokensMax() const {
  return *std::max_element(tokens.begin(), tokens.end());
}

std::string Options::backendName() const {
  return nameOf(kBackends, backend);
}
std::string Options::modeName() const {
  return nameOf(kModes, mode);
}
std::string Options::layoutName() const {
  return nameOf(kLayouts, layout);
}
std::string Options::formatName() const {
  return nameOf(kFormats, format) + (side == Side::array ? "" : " in " + nameOf(kSides, side));
}
std::string Options::castName() const {
  return nameOf(kCastNames, cast);
}
std::string Options::castText() const {
  return castName() + (scales == moeScalesRowMajor ? "" : " " + scalesName());
}
std::string Options::scalesName() const {
  return nameOf(kScales, scales);
}
std::string Options::wireName() const {
  return nameOf(kWires, wire);
}
std::string Options::routingName() const {
  if (routing == Routing::file) return "of " + routingPath.substr(routingPath.rfind('/') + 1);
  return nameOf(kRoutings, routing);
}
std::string Options::routingText() const {
  if (routing != Routing::groupLimited) return routingName();
  return fmt::format("{} ({} of {} groups)", routingName(), groupsPerToken, groups);
}
std::string Options::weightsName() const {
  return style() == ExpertStyle::apply ? "apply" : "applied";
}

std::optional<Options> parseOptions(int argc, const char* const* argv, int* status) {
  CLI::App app(
      "Measures and verifies dispatch and combine. Start one process per rank with moerun, torchrun or another "
      "launcher, or use --ranks-as-threads.");
  tools::prepareCommandLine(app, "moe_perf", notes());
  Options options;
  options.command = fmt::format("{}", fmt::join(argv, argv + argc, " "));
  declareAll(app, options);
  *status = tools::parseCommandLine(app, argc, argv, [&] {
    checkTogether(app, options);
    sortTunedTokens(app, options);
    readRoutingFile(options);
  });
  if (*status >= 0) return std::nullopt;
  return options;
}

}  // namespace moe::perf
