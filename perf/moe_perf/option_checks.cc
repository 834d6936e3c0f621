// Options of moe_perf that do not go together.
#include <fmt/format.h>

#include <algorithm>

#include <CLI/CLI.hpp>

#include "backend/cuda_plan.h"
#include "moecomm.h"
#include "perf/moe_perf/options.h"

namespace moe::perf {
namespace {

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

}  // namespace

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
  if (!options.csv.empty() && (options.soak > 0 || options.transportTest)) {
    throw CLI::ValidationError("--csv has a line for each case: --soak and --transport-test have none; use --json");
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

}  // namespace moe::perf
