#include "perf/moe_perf/option_rules.h"

#include <fmt/format.h>

#include "moecomm.h"

namespace moe::perf {
namespace {

using enum Relation;
using Given = const Options&;

bool always(Given) {
  return true;
}
bool wholePieces(Given o) {
  return o.rowBytes() % 16 == 0;
}
bool wholePiecesOfFp8(Given o) {
  return o.hidden % 16 == 0;
}
bool wholeScaleBlocks(Given o) {
  return o.hidden % kScaleColumns == 0;
}
bool enoughExperts(Given o) {
  return o.topk <= o.experts;
}
bool enoughExpertsForGroups(Given o) {
  return o.groups <= o.experts;
}
bool groupLimited(Given o) {
  return o.routing == Routing::groupLimited;
}
bool routingFile(Given o) {
  return !o.routingPath.empty();
}
bool otherRouting(Given o) {
  return o.routing != Routing::uniform && o.routing != Routing::file;
}
bool host(Given o) {
  return o.backend == moeBackendHost;
}
bool cuda(Given o) {
  return o.backend == moeBackendCuda;
}
bool fp8(Given o) {
  return o.format == Format::fp8;
}
bool payload(Given o) {
  return o.side != Side::array;
}
bool cast(Given o) {
  return o.cast != Cast::none;
}
bool wire(Given o) {
  return o.wire != Wire::row;
}
bool scales(Given o) {
  return o.scales != moeScalesRowMajor;
}
bool scalesInBlocks(Given o) {
  return o.scales == moeScales128x4;
}
bool byteScales(Given o) {
  return !castScalesAreFloats(o.cast);
}
bool staysInSlots(Given o) {
  return o.staysInSlots();
}
bool expertMajor(Given o) {
  return o.expertMajor();
}
bool weightsApply(Given o) {
  return o.weights == "apply";
}
bool oneRank(Given o) {
  return o.threads == 1;
}
bool interleave(Given o) {
  return o.interleave;
}
bool ceiling(Given o) {
  return o.ceiling;
}
bool soak(Given o) {
  return o.soak > 0;
}
bool faultsOneIn(Given o) {
  return o.faultsOneIn > 0;
}
bool transportTest(Given o) {
  return o.transportTest;
}
bool plantWrong(Given o) {
  return o.plantWrong;
}
bool csv(Given o) {
  return !o.csv.empty();
}
bool plot(Given o) {
  return !o.plot.empty();
}
bool compare(Given o) {
  return !o.compare.empty();
}
bool tune(Given o) {
  return !o.tune.empty();
}
bool oneMode(Given o) {
  return o.mode != moeModeAuto;
}
bool reported(Given o) {
  return !o.json.empty() || csv(o) || plot(o) || compare(o) || o.perRank || o.verbose;
}
bool compareLimit(Given o) {
  return o.compareLimit >= 0;
}
bool across(Given o) {
  return o.across != Across::none;
}
bool perRank(Given o) {
  return o.perRank;
}
bool from(Given o) {
  return !o.from.empty();
}
bool plotOrCompare(Given o) {
  return plot(o) || compare(o);
}
bool severalOnStandardOutput(Given o) {
  return o.reportsOnStandardOutput() > 1;
}
bool someTokens(Given o) {
  return from(o) || o.tokensMax() > 0;
}

constexpr OptionRule kRules[] = {
    {always, needs, wholePieces, "--hidden {hidden}: a row of {row} bytes is not a multiple of 16", "--hidden 7"},
    {cast, excludes, fp8, "--cast and --format fp8 cannot be combined: fp8 rows are already cast",
     "--cast fp8 --mode ll --format fp8"},
    {payload, needs, fp8, "--side needs --format fp8: it chooses how the scales of such rows travel", "--side columns"},
    {cast, needs, wholeScaleBlocks, "--cast needs --hidden to be a multiple of {block}",
     "--cast fp8 --mode ll --hidden 200"},
    {wire, needs, wholeScaleBlocks, "--wire needs --hidden to be a multiple of {block}", "--wire fp8 --hidden 200"},
    {wire, excludes, ceiling, "--ceiling cannot be combined with --wire: bare kernels move rows of the row type alone",
     "--wire fp8 --ceiling"},
    {scales, needs, cast, "--scales needs --cast: it chooses the order of a cast's scales",
     "--scales token-contiguous"},
    {scalesInBlocks, needs, byteScales, "--scales 128x4 is for scales of one byte: not those of fp8 and fp8-pow2",
     "--scales 128x4 --cast fp8"},
    {scales, excludes, staysInSlots,
     "--scales needs rows that do not stay in their slots: a --layout other than rank-major, or --window 0",
     "--scales token-contiguous --cast fp8 --mode ll --layout rank-major"},
    {always, needs, enoughExperts, "--topk {topk} is more than --experts {experts}", "--topk 9 --experts 8"},
    {groupLimited, needs, enoughExpertsForGroups, "--groups {groups} is more than --experts {experts}",
     "--routing group-limited --experts 6 --topk 4"},
    {weightsApply, needs, expertMajor, "--weights apply needs a layout with one row per expert",
     "--weights apply --layout flat"},
    {ceiling, excludes, host, "--ceiling cannot be combined with --backend host: it measures the links of GPUs",
     "--ceiling --backend host"},
    {ceiling, excludes, oneRank, "--ceiling needs at least two ranks", "--ceiling --ranks-as-threads 1"},
    {ceiling, excludes, interleave, "--ceiling cannot be combined with --interleave: bare kernels stand for one handle",
     "--ceiling --interleave"},
    {soak, excludes, ceiling, "--soak and --ceiling cannot be combined: --soak measures no times",
     "--soak 5 --ceiling"},
    {soak, needs, wholePiecesOfFp8, "--soak draws formats: --hidden must be a multiple of 16, for a row of fp8",
     "--soak 5 --hidden 24"},
    {routingFile, excludes, otherRouting, "--routing-file and --routing cannot be combined: the file has the routes",
     "--routing-file /dev/null --routing zipf"},
    {routingFile, excludes, soak, "--routing-file and --soak cannot be combined: --soak draws routes",
     "--routing-file /dev/null --soak 5"},
    {faultsOneIn, needs, soak, "--faults-one-in needs --soak: other runs have no iterations with a fault",
     "--faults-one-in 20"},
    {transportTest, excludes, soak, "--transport-test and --soak cannot be combined: --transport-test runs no steps",
     "--transport-test --soak 5"},
    {transportTest, excludes, ceiling,
     "--transport-test and --ceiling cannot be combined: --transport-test runs no steps", "--transport-test --ceiling"},
    {transportTest, excludes, cuda, "--transport-test cannot be combined with --backend cuda: it moves host memory",
     "--transport-test --backend cuda"},
    {plantWrong, needs, transportTest, "--plant-wrong is for --transport-test", "--plant-wrong"},
    {csv, excludes, soak, "--csv has a line for each case, but --soak has no cases: use --json", "--csv x --soak 5"},
    {csv, excludes, transportTest, "--csv has a line for each case, but --transport-test has no cases: use --json",
     "--csv x --transport-test"},
    {plot, excludes, soak, "--plot draws times of cases, but --soak has no cases", "--plot x --soak 5"},
    {plot, excludes, transportTest, "--plot draws times of cases, but --transport-test has no cases",
     "--plot x --transport-test"},
    {always, excludes, severalOnStandardOutput, "only one of --json, --csv and --plot may be -, standard output",
     "--json - --csv -"},
    {plot, needs, someTokens, "--plot needs a case with tokens", "--plot x --tokens 0"},
    {compare, excludes, soak, "--compare is for times of cases, but --soak has no cases", "--compare x --soak 5"},
    {compare, excludes, transportTest, "--compare is for times of cases, but --transport-test has no cases",
     "--compare x --transport-test"},
    {compareLimit, needs, compare, "--compare-limit needs --compare", "--compare-limit 5"},
    {across, needs, compare, "--across needs --compare", "--across mode"},
    {perRank, excludes, soak, "--per-rank is for times of cases, but --soak has no cases", "--per-rank --soak 5"},
    {perRank, excludes, transportTest, "--per-rank is for times of cases, but --transport-test has no cases",
     "--per-rank --transport-test"},
    {tune, excludes, oneMode, "--tune measures both modes: it cannot be combined with --mode ht or ll",
     "--tune x --mode ll"},
    {tune, excludes, soak, "--tune measures steps, but --soak measures no times", "--tune x --soak 5"},
    {tune, excludes, transportTest, "--tune measures steps, but --transport-test runs none",
     "--tune x --transport-test"},
    {tune, excludes, ceiling, "--tune and --ceiling cannot be combined: --tune only compares the modes",
     "--tune x --ceiling"},
    {tune, excludes, reported,
     "--tune prints two times a case: it cannot be combined with --json, --csv, --plot, --compare, --per-rank or "
     "--verbose",
     "--tune x --verbose"},
    {tune, needs, someTokens, "--tune needs a case with tokens", "--tune x --tokens 0"},
    {from, needs, plotOrCompare, "--from needs --plot or --compare", "--from x"},
};

}  // namespace

bool OptionRule::broken(const Options& options) const {
  return option(options) && other(options) != (relation == needs);
}

std::span<const OptionRule> optionRules() {
  return kRules;
}

std::string brokenRule(const Options& options) {
  for (const OptionRule& rule : kRules) {
    if (!rule.broken(options)) continue;
    return fmt::format(fmt::runtime(rule.sentence), fmt::arg("hidden", options.hidden),
                       fmt::arg("row", options.rowBytes()), fmt::arg("block", kScaleColumns),
                       fmt::arg("topk", options.topk), fmt::arg("experts", options.experts),
                       fmt::arg("groups", options.groups));
  }
  return "";
}

}  // namespace moe::perf
