// moe_info shows what this machine and this library offer: the version; backends, and why one is missing; GPUs and
// their links; network adapters; NUMA nodes; the transport between any two GPUs; and what RDMA would use and what it
// lacks.
#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "comm/config/config.h"
#include "comm/config/tuning_file.h"
#include "moecomm.h"
#include "tools/command_line.h"
#include "tools/moe_info_explain.h"
#include "tools/moe_info_report.h"
#include "tools/program_text.h"
#include "topology/nvml.h"

namespace moe::tools {
namespace {

// A backend is available if a communicator of one rank can be made with it. Nothing less would prove it.
BackendStatus probeBackend(const char* name, std::int32_t backend) {
  moeConfig_t config = MOE_CONFIG_INITIALIZER;
  config.backend = backend;
  config.device = 0;
  config.tokensMax = 16;
  config.llTokensMax = 16;
  config.rowBytesMax = 16;
  config.topkMax = 1;
  config.expertsMax = 1;
  moeUniqueId_t id;
  moeComm_t comm = nullptr;
  moeResult_t result = moeGetUniqueId(&id);
  if (result == moeSuccess) result = moeCommInit(&comm, 1, 0, &id, &config);
  const std::string reason = result == moeSuccess ? "" : moeGetLastError(nullptr);
  moeCommDestroy(comm);
  return {name, result == moeSuccess, reason};
}

// Looks for adapters where libibverbs does. Malformed settings, and settings that ask for something missing, are a
// result too.
void lookAround(Report* report) {
  std::optional<Config> config;
  std::string reason;
  try {
    config = resolveConfig(nullptr);
  } catch (const Error& error) {
    reason = error.what();
  }
  report->topology = topology::discover(config ? config->rdma.sys : topology::RdmaSettings().sys);
  try {
    if (config) report->rdma = planRdma(report->topology, config->rdma, config->timeoutMs);
  } catch (const Error& error) {
    reason = error.what();
  }
  if (!reason.empty()) report->rdma.nics.reason = reason;
  report->prerequisites = checkPrerequisites(report->topology, report->rdma);
  const bool hasGpu = !report->topology.gpus.gpus.empty();
  const bool asked = config && config->transport != 0;
  report->betweenHosts = transportBetweenHosts(report->prerequisites, hasGpu);
  if (asked) report->betweenHosts += "; but MOECOMM_TRANSPORT selects the transport, and there is no fallback";
}

Report makeReport() {
  Report report;
  moeGetVersion(&report.version);
  lookAround(&report);
  report.backends.push_back(probeBackend("host", moeBackendHost));
  // If the driver or the GPU is missing, the search for GPUs knows the cause best. Builds without CUDA report that.
  const std::string& reason = report.topology.gpus.reason;
  report.backends.push_back(reason.empty() || MOECOMM_WITH_CUDA == 0 ? probeBackend("cuda", moeBackendCuda)
                                                                     : BackendStatus{"cuda", false, reason});
  return report;
}

// Names of adapters and settings may contain any bytes.
std::string jsonText(const Report& report) {
  return toJson(report).dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
}

const std::map<std::string, Checked> kChecked = {
    {"all", Checked::all}, {"host", Checked::host}, {"cuda", Checked::cuda}, {"rdma", Checked::rdma}};
const std::map<std::string, std::int32_t> kModes = {{"auto", moeModeAuto}, {"ht", moeModeHt}, {"ll", moeModeLl}};
const std::map<std::string, std::int32_t> kLayouts = {{"flat", moeLayoutFlat},
                                                      {"expert-major", moeLayoutExpertMajor},
                                                      {"expert-major-padded", moeLayoutExpertMajorPadded},
                                                      {"rank-major", moeLayoutRankMajor}};
const std::map<std::string, std::int32_t> kBackends = {
    {"auto", moeBackendAuto}, {"host", moeBackendHost}, {"cuda", moeBackendCuda}};

struct Options {
  bool json = false, check = false, explain = false;
  Checked checked = Checked::all;
  ExplainedShape shape;
};

void declareShape(CLI::App& app, ExplainedShape& shape) {
  app.option_defaults()->group("Shape for --explain");
  constexpr int kTokensMax = 1 << 20;
  const std::vector<CLI::Option*> options = {
      addChoice(app, "--backend", shape.backend, kBackends, "where ranks keep their rows"),
      addChoice(app, "--mode", shape.mode, kModes, "high throughput, low latency, or the library's choice"),
      addChoice(app, "--layout", shape.layout, kLayouts, "of the dispatched rows"),
      app.add_option("--ranks", shape.ranks, "ranks of the communicator")->check(wholeNumber(1, 65536)),
      app.add_option("--domain-size", shape.domainSize, "ranks of a domain, such as those of a host; 0: all ranks")
          ->check(wholeNumber(0, 65536)),
      app.add_option("--tokens", shape.tokens, "most tokens of a rank")->check(wholeNumber(1, kTokensMax)),
      app.add_option("--hidden", shape.hidden, "columns of a row, in bf16")->check(wholeNumber(1, kTokensMax)),
      app.add_option("--topk", shape.topk, "experts per token")->check(wholeNumber(1, 32)),
      app.add_option("--experts", shape.experts, "experts over all ranks")->check(wholeNumber(1)),
      app.add_option("--sms", shape.sms, "multiprocessors per call; 0: the library's choice")->check(wholeNumber(0))};
  for (CLI::Option* option : options) {
    option->needs("--explain");
    if (option->get_default_str().empty()) option->capture_default_str();
  }
}

void declare(CLI::App& app, Options& options) {
  std::vector<std::string> known;
  for (const auto& [name, checked] : kChecked) known.push_back(name);
  CLI::Option* json = app.add_flag("--json", options.json, "print JSON, for programs");
  CLI::Option* check = app.add_option_function<std::string>(
                              "--check",
                              [&options](const std::string& name) {
                                options.check = true;
                                options.checked = kChecked.at(name);
                              },
                              "check whether this part can be used, and exit with 1 if not: all, cuda, host, rdma")
                           ->check(oneOf(known), "")
                           ->type_name("NAME")
                           ->expected(0, 1)
                           ->default_str("all")
                           ->excludes(json);
  app.add_flag(
         "--explain", options.explain,
         "show the mode, multiprocessors, memory and transport that a communicator would have on this machine, and why")
      ->excludes(json)
      ->excludes(check);
  declareShape(app, options.shape);
}

ProgramNotes notes() {
  return {{{"0", "the machine was described; with --check: the part can be used"},
           {"1", "with --check: the part cannot be used; otherwise: failure"},
           {"2", "an option is invalid"}},
          {{"MOECOMM_*", "settings of the library, such as MOECOMM_NICS"}},
          {"moe_info", "moe_info --check rdma && echo ready", "moe_info --json | jq .gpus",
           "moe_info --explain --ranks 16 --domain-size 8 --tokens 128 --layout rank-major"}};
}

// Throws if a tuning file is set and cannot be read, as init would.
ExplainingMachine explainingMachine(const Report& report) {
  ExplainingMachine machine;
  machine.processors = report.topology.machine.threads;
  machine.betweenHosts = report.betweenHosts;
  const char* file = processEnvironment()("MOECOMM_TUNING");
  machine.tuningFile = file != nullptr ? file : "";
  if (!machine.tuningFile.empty()) machine.tunedLimits = readTuningFile(machine.tuningFile);
  if (report.topology.gpus.gpus.empty()) return machine;
  const topology::Gpu& gpu = report.topology.gpus.gpus.front();
  machine.multiprocessors = gpu.multiprocessors;
  const std::unique_ptr<topology::Nvml> nvml = topology::Nvml::open();
  if (nvml) machine.linkGBs = nvml->nvlinkMegabytes(gpu.busId.c_str()) / 1000;
  return machine;
}

// Prints what was asked for. Returns the exit status.
int answer(const Options& options, const Report& report) {
  std::string text;
  int status = 0;
  if (options.check) {
    const std::vector<Usability> checks = checkUsability(report, options.checked);
    const auto usable = [](const Usability& one) { return one.usable(); };
    text = toText(checks);
    status = std::all_of(checks.begin(), checks.end(), usable) ? 0 : 1;
  } else if (options.explain) {
    text = explain(options.shape, explainingMachine(report));
  } else {
    text = options.json ? jsonText(report) : toText(report);
  }
  return std::fputs(text.c_str(), stdout) >= 0 ? status : 1;
}

int run(int argc, char** argv) {
  CLI::App app("Shows what this machine and this library offer.");
  prepareCommandLine(app, "moe_info", notes());
  Options options;
  declare(app, options);
  const int status = parseCommandLine(app, argc, argv, [&] {
    if (const std::string sentence = impossible(options.shape); !sentence.empty()) throw CLI::ValidationError(sentence);
  });
  if (status >= 0) return status;
  try {
    return answer(options, makeReport());
  } catch (const std::exception& error) {
    fmt::print(stderr, "moe_info: {}\n", error.what());
    return 1;
  }
}

}  // namespace
}  // namespace moe::tools

int main(int argc, char** argv) {
  return moe::tools::statusOfOutput("moe_info", moe::tools::run(argc, argv));
}
