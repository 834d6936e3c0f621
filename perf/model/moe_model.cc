// moe_model computes, from rates and costs, what dispatch and combine would cost on more ranks than we have. Without
// arguments it prints the tables of docs/internals/scaling.md. Exit status: 0, or 2 for wrong options.
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <exception>
#include <fstream>
#include <map>
#include <stdexcept>
#include <string>

#include <CLI/CLI.hpp>

#include "perf/model/plot.h"
#include "perf/model/tables.h"
#include "tools/command_line.h"
#include "tools/program_text.h"

namespace moe::model {
namespace {

struct Options {
  Study study;
  std::string machine = "nodes";
  int llTokens = 128;
  int htTokens = 4096;
  Transport transport = Transport::ibgda;
  double nvlinkGBs = 0, railGBs = 0, startUs = -1, railLatencyUs = -1, postUs = -1;
  int domainRanks = 0;
  std::string json;
  std::string plot;
};

const std::map<std::string, RowType> kRowTypes = {{"fp8", RowType::fp8}, {"bf16", RowType::bf16}};
const std::map<std::string, Transport> kTransports = {{"ibgda", Transport::ibgda}, {"proxy", Transport::proxy}};

void declareWorkload(CLI::App& app, Options& options) {
  Workload& w = options.study.workload;
  app.add_option("--ranks", options.study.ranks,
                 "numbers of ranks, one case each; default: those of docs/internals/scaling.md")
      ->delimiter(',')
      ->check(CLI::Range(1, 1 << 16));
  app.add_option("--ll-tokens", options.llTokens, "tokens per rank in LL")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  app.add_option("--ht-tokens", options.htTokens, "tokens per rank in HT")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  app.add_option("--hidden", w.hidden, "columns of a row")->check(CLI::PositiveNumber)->capture_default_str();
  app.add_option("--topk", w.topk, "experts per token")->check(CLI::Range(1, 32))->capture_default_str();
  app.add_option("--experts", w.experts,
                 "experts over all ranks; 0: the smallest multiple of ranks that is at least 256")
      ->check(CLI::NonNegativeNumber);
  app.add_option("--domain-limit", w.domainLimit, "most domains of a token; 0: no limit")
      ->check(CLI::NonNegativeNumber);
  app.add_option("--dispatch-rows", w.dispatchRow, "fp8 or bf16")->transform(CLI::CheckedTransformer(kRowTypes));
  app.add_option("--combine-rows", w.combineRow, "fp8 or bf16")->transform(CLI::CheckedTransformer(kRowTypes));
}

void declareMachine(CLI::App& app, Options& options) {
  app.add_option("--machine", options.machine, "nodes of 8 GPUs, or fabrics of 72")
      ->check(CLI::IsMember({"nodes", "fabrics"}))
      ->capture_default_str();
  app.add_option("--transport", options.transport, "what posts messages: ibgda (the GPU) or proxy (a CPU thread)")
      ->transform(CLI::CheckedTransformer(kTransports));
  app.add_option("--domain", options.domainRanks, "ranks that load and store each other's memory")
      ->check(CLI::PositiveNumber);
  app.add_option("--nvlink", options.nvlinkGBs, "GB/s per rank and direction")->check(CLI::PositiveNumber);
  app.add_option("--rail", options.railGBs, "GB/s per rank and direction")->check(CLI::PositiveNumber);
  app.add_option("--start-us", options.startUs, "time of an operation that moves almost nothing")
      ->check(CLI::NonNegativeNumber);
  app.add_option("--rail-latency-us", options.railLatencyUs, "from post to arrival")->check(CLI::NonNegativeNumber);
  app.add_option("--post-us", options.postUs, "per message, instead of our calls")->check(CLI::NonNegativeNumber);
}

Machine machineOf(const Options& o) {
  Machine machine = o.machine == "nodes" ? nodesOf8(o.transport) : fabricsOf72(o.transport);
  if (o.domainRanks > 0) machine.domainRanks = o.domainRanks;
  if (o.nvlinkGBs > 0) machine.nvlinkGBs = o.nvlinkGBs;
  if (o.railGBs > 0) machine.railGBs = o.railGBs;
  if (o.startUs >= 0) machine.startUs = o.startUs;
  if (o.railLatencyUs >= 0) machine.railLatencyUs = o.railLatencyUs;
  if (o.postUs >= 0) {
    machine = withoutCalls(machine);
    machine.postUs = o.postUs;
  }
  return machine;
}

Study studyOf(const Options& options, int tokens) {
  Study study = options.study;
  study.machine = machineOf(options);
  study.workload.tokens = tokens;
  if (study.ranks.empty()) study.ranks = (options.machine == "nodes" ? nodesStudy(1) : fabricsStudy(1)).ranks;
  return study;
}

void print(const std::string& title, const std::string& text) {
  fmt::print("{}\n\n{}\n", title, text);
}

nlohmann::ordered_json printDocument() {
  for (const NamedTable& table : documentTables()) print(table.title, table.text);
  return documentJson();
}

nlohmann::ordered_json printStudy(const Options& options) {
  const Study ll = studyOf(options, options.llTokens), ht = studyOf(options, options.htTokens);
  for (const int ranks : ll.ranks) {
    Workload w = ll.workload;
    w.ranks = ranks;
    check(ll.machine, w);
  }
  const std::string name = fmt::format("domains of {}", ll.machine.domainRanks);
  print("Destinations, " + name, destinationsTable(ll));
  print("LL, " + name + " (dispatch / combine)", llTable(ll));
  print("HT, " + name + " (dispatch / combine)", htTable(ht));
  print("MiB and queue pairs per rank, " + name, memoryTable(ll, ht));
  return {{"cases", toJson(ll, ht)}};
}

void writeFile(const std::string& file, const std::string& text) {
  std::ofstream out(file);
  out << text;
  out.close();
  if (!out) throw std::runtime_error("cannot write " + file);
}

bool asksForACase(const CLI::App& app) {
  const auto options = app.get_options();
  return std::any_of(options.begin(), options.end(), [](const CLI::Option* option) {
    return option->count() > 0 && option->get_name() != "--json" && option->get_name() != "--plot";
  });
}

void report(const CLI::App& app, const Options& options) {
  const bool document = !asksForACase(app);
  if (!document && !options.plot.empty()) {
    throw std::runtime_error(
        "--plot draws the picture of docs/internals/scaling.md, and can be combined only with --json");
  }
  const nlohmann::ordered_json json = document ? printDocument() : printStudy(options);
  if (!options.json.empty()) writeFile(options.json, json.dump(2) + "\n");
  if (!options.plot.empty()) writeFile(options.plot, plotText(json));
}

int run(int argc, const char* const* argv) {
  CLI::App app(
      "Computes what dispatch and combine would cost on many ranks. Without options: the tables of "
      "docs/internals/scaling.md. Nothing is measured.");
  tools::prepareCommandLine(app, "moe_model");
  Options options;
  declareWorkload(app, options);
  declareMachine(app, options);
  app.add_option("--json", options.json, "file that gets the same results as JSON");
  app.add_option("--plot", options.plot, "file that gets the picture of docs/internals/scaling.md as SVG");
  const int status = tools::parseCommandLine(app, argc, argv, [] {});
  if (status >= 0) return status;
  try {
    report(app, options);
    return 0;
  } catch (const std::exception& error) {
    fmt::print(stderr, "moe_model: {}\n", error.what());
    return 2;
  }
}

}  // namespace
}  // namespace moe::model

int main(int argc, char** argv) {
  return moe::tools::statusOfOutput("moe_model", moe::model::run(argc, argv));
}
