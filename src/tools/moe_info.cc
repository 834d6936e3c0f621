// moe_info shows what this machine and this library offer: the version; backends, and why one is missing; GPUs and
// their links; network adapters; NUMA nodes; the transport between any two GPUs; and what RDMA would use and what it
// lacks.
#include <fmt/format.h>

#include <cstdint>
#include <cstdio>
#include <exception>
#include <optional>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "comm/config/config.h"
#include "moecomm.h"
#include "tools/command_line.h"
#include "tools/moe_info_report.h"
#include "tools/standard_output.h"

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
  // If the driver or the GPU is missing, the search for GPUs knows the cause best. A build without CUDA lacks more.
  const std::string& reason = report.topology.gpus.reason;
  report.backends.push_back(reason.empty() || MOECOMM_WITH_CUDA == 0 ? probeBackend("cuda", moeBackendCuda)
                                                                     : BackendStatus{"cuda", false, reason});
  return report;
}

// Names of adapters and settings may contain any bytes.
std::string jsonText(const Report& report) {
  return toJson(report).dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
}

int run(int argc, char** argv) {
  CLI::App app("Shows what this machine and this library offer.");
  moe::tools::prepareCommandLine(app, "moe_info");
  bool json = false;
  app.add_flag("--json", json, "print JSON, for programs");
  const int status = moe::tools::parseCommandLine(app, argc, argv, [] {});
  if (status >= 0) return status;
  try {
    const Report report = makeReport();
    const std::string text = json ? jsonText(report) : toText(report);
    return std::fputs(text.c_str(), stdout) >= 0 ? 0 : 1;
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
