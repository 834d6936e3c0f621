// Reads what launchers say about this rank, from their environment variables.
#include <fmt/format.h>

#include <initializer_list>
#include <optional>
#include <string_view>

#include "bootstrap/net/keyed_hash.h"
#include "bootstrap/net/socket.h"
#include "comm/config/config.h"

namespace moe {
namespace {

// Derived ports lie below the range from which Linux picks ports for outgoing connections (32768 and up).
constexpr int kPortMin = 20000;
constexpr int kPortCount = 12768;

class Variables {
 public:
  Variables(const Lookup& lookup, const char* launcher) : lookup_(lookup), launcher_(launcher) {}

  std::optional<std::string> find(const char* name) const {
    const char* text = lookup_(name);
    if (text == nullptr || *text == '\0') return std::nullopt;
    return text;
  }

  // The first of `names` that is set.
  std::optional<std::string> findFirst(std::initializer_list<const char*> names) const {
    for (const char* name : names) {
      if (auto text = find(name)) return text;
    }
    return std::nullopt;
  }

  std::string require(const char* name) const {
    if (auto text = find(name)) return *text;
    throw Error(moeInvalidUsage, fmt::format("launched by {}, but {} is not set", launcher_, name));
  }

  int requireInteger(const char* name, std::int64_t min, std::int64_t max) const {
    return static_cast<int>(parseInteger(name, require(name), min, max));
  }

  int integerOr(const char* name, int other) const {
    const auto text = find(name);
    return text ? static_cast<int>(parseInteger(name, *text, 0, Limits::kRanks - 1)) : other;
  }

  const char* launcher() const { return launcher_; }

 private:
  const Lookup& lookup_;
  const char* launcher_;
};

// All ranks know the same text and so derive the same 16 bytes, which keep jobs apart. The text is no secret:
// docs/guide/launchers.md says what the bytes do not protect against.
Secret deriveBytes(std::string_view purpose, std::string_view text) {
  return bootstrap::deriveKey({}, purpose, {reinterpret_cast<const std::uint8_t*>(text.data()), text.size()});
}

std::uint16_t derivePort(std::string_view job) {
  const Secret bytes = deriveBytes("job port", job);
  return static_cast<std::uint16_t>(kPortMin + (bytes[0] * 256 + bytes[1]) % kPortCount);
}

void readRank(const Variables& env, const char* rankName, const char* sizeName, LaunchEnvironment* launch) {
  launch->launcher = env.launcher();
  launch->nranks = env.requireInteger(sizeName, 1, Limits::kRanks);
  launch->rank = env.requireInteger(rankName, 0, launch->nranks - 1);
}

bool readRoot(const Variables& env, LaunchEnvironment* launch) {
  const auto text = env.find("MOECOMM_ROOT");
  if (!text) return false;
  const HostPort root = parseHostPort("MOECOMM_ROOT", *text);
  launch->rootHost = root.host;
  launch->rootPort = root.port;
  return true;
}

void readSecret(const Variables& env, std::string_view job, LaunchEnvironment* launch) {
  if (const auto text = env.find("MOECOMM_SECRET")) {
    launch->secret = parseSecret("MOECOMM_SECRET", *text);
  } else {
    const std::string place = fmt::format("{}:{}", launch->rootHost, launch->rootPort);
    launch->secret = deriveBytes("job secret", fmt::format("{}|{}|{}", launch->launcher, place, job));
  }
}

LaunchEnvironment readMoerun(const Lookup& lookup) {
  const Variables env(lookup, "moerun");
  LaunchEnvironment launch;
  readRank(env, "MOECOMM_RANK", "MOECOMM_NRANKS", &launch);
  launch.localRank = env.requireInteger("MOECOMM_LOCAL_RANK", 0, launch.nranks - 1);
  env.require("MOECOMM_ROOT");
  readRoot(env, &launch);
  launch.secret = parseSecret("MOECOMM_SECRET", env.require("MOECOMM_SECRET"));
  return launch;
}

LaunchEnvironment readTorchrun(const Lookup& lookup) {
  const Variables env(lookup, "torchrun");
  LaunchEnvironment launch;
  readRank(env, "RANK", "WORLD_SIZE", &launch);
  launch.localRank = env.integerOr("LOCAL_RANK", -1);
  if (!readRoot(env, &launch)) {
    launch.rootHost = env.require("MASTER_ADDR");
    // torchrun's own store listens on MASTER_PORT.
    launch.rootPort = static_cast<std::uint16_t>(env.requireInteger("MASTER_PORT", 1, 65534) + 1);
  }
  readSecret(env, env.find("TORCHELASTIC_RUN_ID").value_or(""), &launch);
  return launch;
}

LaunchEnvironment readOpenMpi(const Lookup& lookup) {
  const Variables env(lookup, "Open MPI");
  LaunchEnvironment launch;
  readRank(env, "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", &launch);
  launch.localRank = env.integerOr("OMPI_COMM_WORLD_LOCAL_RANK", -1);
  const std::string job =
      env.findFirst({"PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid", "OMPI_MCA_orte_ess_jobid"}).value_or("");
  if (!readRoot(env, &launch)) {
    const int localSize = env.requireInteger("OMPI_COMM_WORLD_LOCAL_SIZE", 1, Limits::kRanks);
    if (localSize != launch.nranks || job.empty()) {
      throw Error(
          moeInvalidUsage,
          fmt::format("Open MPI started {} ranks, {} of them on this host{}: set MOECOMM_ROOT to host:port, where "
                      "host runs rank 0 and port is free (mpirun -x MOECOMM_ROOT)",
                      launch.nranks, localSize, job.empty() ? ", and gives no job id" : ""));
    }
    launch.rootHost = bootstrap::loopbackOfThisHost().host();
    launch.rootPort = derivePort(job);
  }
  readSecret(env, job, &launch);
  return launch;
}

// The first host of a Slurm node list: "a", "a,b", "node[01-04,9],b". Empty where a name has text after its brackets.
std::string firstHost(std::string_view list) {
  const std::size_t stop = list.find_first_of("[,");
  if (stop == std::string_view::npos || list[stop] == ',') return std::string(list.substr(0, stop));
  const std::size_t close = list.find(']', stop);
  if (close == std::string_view::npos) return "";
  if (close + 1 != list.size() && list[close + 1] != ',') return "";
  const std::size_t digits = list.find_first_of("-,]", stop + 1);
  if (digits == stop + 1) return "";
  return std::string(list.substr(0, stop)) + std::string(list.substr(stop + 1, digits - stop - 1));
}

LaunchEnvironment readSlurm(const Lookup& lookup) {
  const Variables env(lookup, "Slurm");
  LaunchEnvironment launch;
  // The number of tasks of the step. The job's may differ if srun starts only some of them.
  readRank(env, "SLURM_PROCID", env.find("SLURM_STEP_NUM_TASKS") ? "SLURM_STEP_NUM_TASKS" : "SLURM_NTASKS", &launch);
  launch.localRank = env.integerOr("SLURM_LOCALID", -1);
  const std::string id = env.findFirst({"SLURM_JOB_ID", "SLURM_JOBID"}).value_or("");
  const std::string job = fmt::format("{}.{}", id, env.findFirst({"SLURM_STEP_ID", "SLURM_STEPID"}).value_or(""));
  if (!readRoot(env, &launch)) {
    // Task 0 runs on the first node of the step. The launch node comes second, because it may be a login node.
    const auto nodes = env.findFirst({"SLURM_STEP_NODELIST", "SLURM_NODELIST"});
    launch.rootHost = nodes ? firstHost(*nodes) : "";
    if (launch.rootHost.empty()) launch.rootHost = env.find("SLURM_LAUNCH_NODE_IPADDR").value_or("");
    if (launch.rootHost.empty() || id.empty()) {
      throw Error(moeInvalidUsage,
                  "launched by Slurm, but SLURM_JOB_ID with SLURM_STEP_NODELIST or SLURM_LAUNCH_NODE_IPADDR does not "
                  "say where rank 0 runs: set MOECOMM_ROOT to host:port");
    }
    launch.rootPort = derivePort(job);
  }
  readSecret(env, job, &launch);
  return launch;
}

LaunchEnvironment readPmi(const Lookup& lookup) {
  const Variables env(lookup, "PMI");
  LaunchEnvironment launch;
  readRank(env, "PMI_RANK", "PMI_SIZE", &launch);
  launch.localRank = env.integerOr("MPI_LOCALRANKID", -1);
  env.require("MOECOMM_ROOT");
  readRoot(env, &launch);
  readSecret(env, env.find("PMI_JOBID").value_or(""), &launch);
  return launch;
}

}  // namespace

LaunchEnvironment launchFromEnvironment(const Lookup& lookup) {
  const Variables env(lookup, "");
  if (env.find("MOECOMM_RANK") || env.find("MOECOMM_NRANKS")) return readMoerun(lookup);
  if (env.find("RANK") && env.find("WORLD_SIZE")) return readTorchrun(lookup);
  if (env.find("OMPI_COMM_WORLD_RANK")) return readOpenMpi(lookup);
  if (env.find("SLURM_PROCID")) return readSlurm(lookup);
  if (env.find("PMI_RANK")) return readPmi(lookup);
  throw Error(
      moeInvalidUsage,
      "no launcher is recognised: none of MOECOMM_RANK (moerun), RANK with WORLD_SIZE (torchrun), "
      "OMPI_COMM_WORLD_RANK (Open MPI), SLURM_PROCID (Slurm) and PMI_RANK (PMI) is set; start the program with one "
      "of them, or call moeCommInit");
}

}  // namespace moe
