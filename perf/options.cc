#include "options.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include <CLI/CLI.hpp>

#include "backend/cuda_plan.h"
#include "moecomm.h"

namespace moe::perf {
namespace {

template <class Value>
using Names = std::map<std::string, Value>;

const Names<std::int32_t> kBackends = {{"auto", moeBackendAuto}, {"host", moeBackendHost}, {"cuda", moeBackendCuda}};
const Names<std::int32_t> kModes = {{"auto", moeModeAuto}, {"ht", moeModeHt}, {"ll", moeModeLl}};
const Names<std::int32_t> kLayouts = {{"flat", moeLayoutFlat},
                                      {"expert-major", moeLayoutExpertMajor},
                                      {"expert-major-padded", moeLayoutExpertMajorPadded},
                                      {"rank-major", moeLayoutRankMajor}};
const Names<Format> kFormats = {
    {"bf16", Format::kBf16}, {"fp16", Format::kFp16}, {"fp32", Format::kFp32}, {"fp8", Format::kFp8}};
const Names<Cast> kCasts = {{"none", Cast::kNone}, {"fp8", Cast::kFp8}, {"fp8-ue8m0", Cast::kFp8Ue8m0}};
const Names<std::int32_t> kScales = {{"row-major", moeScalesRowMajor}, {"token-contiguous", moeScalesTokenContiguous}};
const Names<Routing> kRoutings = {{"uniform", Routing::kUniform},
                                  {"zipf", Routing::kZipf},
                                  {"group-limited", Routing::kGroupLimited},
                                  {"one-rank", Routing::kOneRank},
                                  {"empty", Routing::kEmpty}};
const Names<std::int32_t> kTransports = {
    {"auto", 0}, {"tcp", moeTransportTcp}, {"verbs", moeTransportVerbs}, {"ibgda", moeTransportIbgda}};

template <class Value>
std::string nameOf(const Names<Value>& names, Value value) {
  for (const auto& [name, other] : names) {
    if (other == value) return name;
  }
  return "?";
}

template <class Value>
void addChoice(CLI::App& app, const std::string& option, Value& value, const Names<Value>& names,
               const std::string& text) {
  app.add_option(option, value, text)->transform(CLI::CheckedTransformer(names))->default_str(nameOf(names, value));
}

void declareCase(CLI::App& app, Options& options) {
  addChoice(app, "--backend", options.backend, kBackends, "host, cuda, or auto: cuda if a usable GPU is there");
  addChoice(app, "--mode", options.mode, kModes, "high throughput, low latency, or chosen by token count");
  addChoice(app, "--layout", options.layout, kLayouts, "layout of the dispatched rows");
  addChoice(app, "--format", options.format, kFormats,
            "row type; fp8: e4m3 bytes with an fp32 scale per 128 columns as side payload, combined in bf16");
  addChoice(
      app, "--cast", options.cast, kCasts,
      "LL: what dispatch makes of the rows on their way: e4m3 with an fp32 or a power-of-two scale per 128 columns");
  addChoice(app, "--scales", options.scales, kScales,
            "order of a cast's scales in the output: those of a row together, or those of a column block");
  addChoice(app, "--routing", options.routing, kRoutings,
            "who gets the tokens; group-limited: the best experts of the best --groups-per-token of --groups");
  app.add_option("--groups", options.groups, "groups of experts, for --routing group-limited")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  app.add_option("--groups-per-token", options.groupsPerToken, "groups that a token's experts come from, at most")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  app.add_option("--tokens", options.tokens, "tokens per rank; one case for each")
      ->delimiter(',')
      ->check(CLI::Range(0, 1 << 20))
      ->capture_default_str();
  app.add_option("--hidden", options.hidden, "columns of a row")->check(CLI::PositiveNumber)->capture_default_str();
  app.add_option("--topk", options.topk, "experts of a token")->check(CLI::Range(1, 32))->capture_default_str();
  app.add_option("--experts", options.experts, "experts over all ranks")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  app.add_option("--sms", options.sms, "multiprocessors per call; 0: the library's choice")
      ->check(CLI::NonNegativeNumber);
  app.add_option("--weights", options.weights, "who multiplies by the weights: combine (apply) or the expert (applied)")
      ->check(CLI::IsMember({"auto", "apply", "applied"}))
      ->capture_default_str();
  app.add_option("--window", options.window, "1: outputs in window memory; 0: in memory of the caller")
      ->check(CLI::Range(0, 1))
      ->capture_default_str();
  app.add_option("--seed", options.seed, "of routes and payloads")->capture_default_str();
}

void declareRun(CLI::App& app, Options& options) {
  app.add_option("--chain", options.chain,
                 "dispatches, combines, and pairs of them in a timed sample, back to back; a time is their mean")
      ->check(CLI::Range(1, 1000))
      ->capture_default_str();
  app.add_option("--iters", options.iters, "iterations, timed and verified")
      ->check(CLI::Range(1, 1000000))
      ->capture_default_str();
  app.add_option("--timed", options.timed, "iterations that are timed, if not as many as are verified")
      ->check(CLI::Range(1, 1000000));
  app.add_option("--warmup", options.warmup, "iterations before the timed ones")
      ->check(CLI::Range(0, 1000000))
      ->capture_default_str();
  app.add_flag("--graph", options.graph, "replay captured CUDA graphs");
  app.add_flag("--interleave", options.interleave, "two handles: dispatch A, dispatch B, combine A, combine B");
  app.add_flag("--ceiling", options.ceiling,
               "also measure what bare kernels reach that only move the same rows between the same ranks, and print "
               "results as shares of it; needs GPUs and at least two ranks");
  app.add_flag("--twin", options.twin,
               "also run the hand-written twin of the kernel of HT dispatch in its place, verified, and print both "
               "times and their ratio; --mode ht, --layout flat, outputs in window memory, GPUs from sm_90 on");
  app.add_option(
         "--soak", options.soak,
         "instead of cases, this many verified iterations of route, dispatch and combine on one communicator, in "
         "shapes drawn from --seed: --tokens, --hidden, --topk and --experts are the largest, --mode auto stands "
         "for both in turn, --graph may be given; layout, format, routing and the other options are drawn")
      ->check(CLI::Range(1, 1000000000));
  app.add_flag("--send-only", options.sendOnly, "start each operation with moeSendOnly and finish it with moeComplete");
  app.add_option("--ranks-as-threads", options.threads, "run this many ranks as threads; default: one rank per process")
      ->check(CLI::Range(1, 1024));
  app.add_option("--domain-size", options.domainSize,
                 "ranks that reach each other by loads and stores, the others by --transport; 0: those of a host")
      ->check(CLI::NonNegativeNumber);
  addChoice(app, "--transport", options.transport, kTransports,
            "what carries data between domains; auto: the fastest that works");
  app.add_flag("--transport-test", options.transportTest,
               "instead of cases, test the transport itself: order, latency, rate and bandwidth of puts between host "
               "memory of each two ranks of different domains (of one rank each, unless --domain-size says otherwise)");
  app.add_flag("--plant-wrong", options.plantWrong,
               "with --transport-test: spoil a byte of a row before it leaves, to see that the test finds it");
  app.add_option("--timeout-ms", options.timeoutMs, "longest wait for another rank; 0: the library's default")
      ->check(CLI::NonNegativeNumber);
  app.add_option("--verify-every", options.verifyEvery,
                 "check every element in each n-th iteration and in the first and last, a sample in the others")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  app.add_option("--json", options.json, "file for the report of rank 0");
}

// The twin is one kernel: everything else is the library's.
void checkTwin(const Options& options) {
  const auto refuseIf = [](bool unfit, const std::string& why) {
    if (unfit) throw CLI::ValidationError("--twin " + why);
  };
  refuseIf(options.backend == moeBackendHost, "needs GPUs: it is a kernel, and --backend is host");
  refuseIf(options.soak > 0 || options.transportTest, "is for cases: not for --soak or --transport-test");
  refuseIf(options.mode != moeModeHt, "stands for HT dispatch: it needs --mode ht");
  refuseIf(options.layout != moeLayoutFlat, "stands for dispatch at once: it needs --layout flat");
  refuseIf(options.window == 0, "writes to outputs in window memory: it needs --window 1");
  refuseIf(options.sendOnly, "sends and receives in one: it cannot be combined with --send-only");
  refuseIf(*std::min_element(options.tokens.begin(), options.tokens.end()) <= kSmallTokens,
           fmt::format("stands for the kernel of more than {} tokens", kSmallTokens));
  refuseIf(options.rowBytes() < kBulkRowBytesMin,
           fmt::format("stands for the kernel of rows from {} bytes on", kBulkRowBytesMin));
}

void checkTogether(const Options& options) {
  if (options.twin) checkTwin(options);
  if (options.rowBytes() % 16 != 0) {
    throw CLI::ValidationError(
        fmt::format("--hidden {}: a row of {} bytes is no multiple of 16", options.hidden, options.rowBytes()));
  }
  if (options.cast != Cast::kNone && (options.mode != moeModeLl || options.format == Format::kFp8)) {
    throw CLI::ValidationError("--cast needs --mode ll, and rows that are not fp8 already");
  }
  if (options.scales != moeScalesRowMajor && (options.cast == Cast::kNone || options.staysInSlots())) {
    throw CLI::ValidationError(
        "--scales needs --cast, and rows that do not stay in their slots: another --layout than "
        "rank-major, or --window 0");
  }
  if (options.cast != Cast::kNone && options.hidden % kScaleColumns != 0) {
    throw CLI::ValidationError(fmt::format("--cast needs --hidden to be a multiple of {}", kScaleColumns));
  }
  if (options.topk > options.experts) {
    throw CLI::ValidationError(fmt::format("--topk {} is more than --experts {}", options.topk, options.experts));
  }
  if (options.routing == Routing::kGroupLimited && options.groups > options.experts) {
    throw CLI::ValidationError(fmt::format("--groups {} is more than --experts {}", options.groups, options.experts));
  }
  if (options.weights == "apply" && !options.expertMajor()) {
    throw CLI::ValidationError("--weights apply needs a layout with one row per expert");
  }
  if (options.ceiling && options.backend == moeBackendHost) {
    throw CLI::ValidationError("--ceiling needs GPUs: it measures what their links can do, not --backend host");
  }
  if (options.ceiling && options.threads == 1) throw CLI::ValidationError("--ceiling needs at least two ranks");
  if (options.soak > 0 && options.ceiling) throw CLI::ValidationError("--soak times nothing: it has no --ceiling");
  if (options.soak > 0 && options.hidden % 16 != 0) {
    throw CLI::ValidationError("--soak draws formats: --hidden must be a multiple of 16, for a row of fp8");
  }
  if (options.transportTest && (options.soak > 0 || options.ceiling)) {
    throw CLI::ValidationError("--transport-test runs no steps: it has neither --soak nor --ceiling");
  }
  if (options.plantWrong && !options.transportTest) {
    throw CLI::ValidationError("--plant-wrong is for --transport-test");
  }
  if (options.transportTest && options.backend == moeBackendCuda) {
    throw CLI::ValidationError("--transport-test moves host memory: it cannot be combined with --backend cuda");
  }
  if (options.ceiling && options.interleave) {
    throw CLI::ValidationError("--ceiling is that of one handle: it cannot be combined with --interleave");
  }
}

}  // namespace

bool Options::expertMajor() const {
  return layout == moeLayoutExpertMajor || layout == moeLayoutExpertMajorPadded;
}

bool Options::staysInSlots() const {
  return mode == moeModeLl && layout == moeLayoutRankMajor && window != 0;
}

ExpertStyle Options::style() const {
  if (!expertMajor()) return ExpertStyle::kSummed;
  return weights == "applied" ? ExpertStyle::kApplied : ExpertStyle::kApply;
}

RowShape Options::rowShape() const {
  const int blocks = (hidden + kScaleColumns - 1) / kScaleColumns;
  return {format, hidden, format == Format::kFp8 ? (blocks + 3) / 4 * 4 : 0};
}

int Options::scaleWords() const {
  const int blocks = hidden / kScaleColumns;
  return cast == Cast::kNone ? 0 : cast == Cast::kFp8 ? blocks : (blocks + 3) / 4;
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
  return nameOf(kFormats, format);
}
std::string Options::castName() const {
  return nameOf(kCasts, cast);
}
std::string Options::castText() const {
  return castName() + (scales == moeScalesRowMajor ? "" : " " + scalesName());
}
std::string Options::scalesName() const {
  return nameOf(kScales, scales);
}
std::string Options::routingName() const {
  return nameOf(kRoutings, routing);
}
std::string Options::routingText() const {
  if (routing != Routing::kGroupLimited) return routingName();
  return fmt::format("{} ({} of {} groups)", routingName(), groupsPerToken, groups);
}
std::string Options::weightsName() const {
  return style() == ExpertStyle::kApply ? "apply" : "applied";
}

std::optional<Options> parseOptions(int argc, const char* const* argv, int* status) {
  CLI::App app(
      "Measures and verifies dispatch and combine. Start one process per rank with moerun, torchrun or another "
      "launcher, or use --ranks-as-threads.");
  Options options;
  declareCase(app, options);
  declareRun(app, options);
  try {
    app.parse(argc, argv);
    checkTogether(options);
    return options;
  } catch (const CLI::ParseError& error) {
    *status = app.exit(error) == 0 ? 0 : 2;
  }
  return std::nullopt;
}

}  // namespace moe::perf
