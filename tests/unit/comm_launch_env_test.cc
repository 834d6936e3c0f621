#include <gtest/gtest.h>

#include "base/error.h"
#include "comm/config/config.h"
#include "unit/fake_environment.h"

namespace moe::test {
namespace {

constexpr const char* kDigits = "000102030405060708090a0b0c0d0eFF";

LaunchEnvironment launch(const Environment& environment) {
  return launchFromEnvironment(lookupIn(environment));
}

struct Refusal {
  moeResult_t result;
  std::string sentence;
};

Refusal refusal(const Environment& environment) {
  try {
    launch(environment);
  } catch (const Error& error) {
    return {error.result(), error.what()};
  }
  return {moeSuccess, "not refused"};
}

Environment with(Environment environment, const std::string& name, const std::string& value) {
  environment[name] = value;
  return environment;
}

Environment without(Environment environment, const std::string& name) {
  environment.erase(name);
  return environment;
}

const Environment kMoerun = {{"MOECOMM_RANK", "5"},
                             {"MOECOMM_NRANKS", "8"},
                             {"MOECOMM_LOCAL_RANK", "1"},
                             {"MOECOMM_ROOT", "10.0.0.1:4000"},
                             {"MOECOMM_SECRET", kDigits}};
const Environment kTorchrun = {{"RANK", "3"},
                               {"WORLD_SIZE", "4"},
                               {"LOCAL_RANK", "3"},
                               {"MASTER_ADDR", "node0"},
                               {"MASTER_PORT", "29500"},
                               {"TORCHELASTIC_RUN_ID", "job-1"}};
const Environment kOpenMpi = {{"OMPI_COMM_WORLD_RANK", "1"},
                              {"OMPI_COMM_WORLD_SIZE", "2"},
                              {"OMPI_COMM_WORLD_LOCAL_RANK", "1"},
                              {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"},
                              {"PMIX_NAMESPACE", "prterun-host-77@1"}};
const Environment kSlurm = {
    {"SLURM_PROCID", "6"},    {"SLURM_NTASKS", "16"}, {"SLURM_LOCALID", "2"},
    {"SLURM_JOB_ID", "1234"}, {"SLURM_STEP_ID", "0"}, {"SLURM_STEP_NODELIST", "gpu[07-09,12],big1"},
    {"PMI_RANK", "6"},        {"PMI_SIZE", "16"},     {"SLURM_LAUNCH_NODE_IPADDR", "192.0.2.9"}};
const Environment kPmi = {{"PMI_RANK", "0"}, {"PMI_SIZE", "2"}, {"MOECOMM_ROOT", "[2001:db8::7]:4000"}};

TEST(LaunchEnvironment, ReadsMoerun) {
  const LaunchEnvironment found = launch(kMoerun);
  EXPECT_EQ(found.launcher, "moerun");
  EXPECT_EQ(found.rank, 5);
  EXPECT_EQ(found.nranks, 8);
  EXPECT_EQ(found.localRank, 1);
  EXPECT_EQ(found.rootHost, "10.0.0.1");
  EXPECT_EQ(found.rootPort, 4000);
  EXPECT_EQ(found.secret, (Secret{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 255}));
}

TEST(LaunchEnvironment, NamesTheVariableThatMoerunLeftOut) {
  for (const auto& [name, value] : kMoerun) {
    const Refusal refused = refusal(without(kMoerun, name));
    EXPECT_EQ(refused.result, moeInvalidUsage);
    EXPECT_EQ(refused.sentence, "launched by moerun, but " + name + " is not set");
  }
}

TEST(LaunchEnvironment, ReadsTorchrunAndLeavesItsStoresPortAlone) {
  const LaunchEnvironment found = launch(kTorchrun);
  EXPECT_EQ(found.launcher, "torchrun");
  EXPECT_EQ(found.rank, 3);
  EXPECT_EQ(found.nranks, 4);
  EXPECT_EQ(found.localRank, 3);
  EXPECT_EQ(found.rootHost, "node0");
  EXPECT_EQ(found.rootPort, 29501);
}

TEST(LaunchEnvironment, TakesRootAndSecretInPreferenceToWhatItWouldDerive) {
  const Environment environment =
      with(with(kTorchrun, "MOECOMM_ROOT", "other:1"), "MOECOMM_SECRET", kMoerun.at("MOECOMM_SECRET"));
  const LaunchEnvironment found = launch(environment);
  EXPECT_EQ(found.launcher, "torchrun");
  EXPECT_EQ(found.rootHost, "other");
  EXPECT_EQ(found.rootPort, 1);
  EXPECT_EQ(found.secret, launch(kMoerun).secret);
}

TEST(LaunchEnvironment, DerivesOneSecretPerJob) {
  const Secret secret = launch(kTorchrun).secret;
  EXPECT_EQ(launch(with(kTorchrun, "RANK", "0")).secret, secret) << "every rank must derive the same";
  EXPECT_NE(launch(with(kTorchrun, "TORCHELASTIC_RUN_ID", "job-2")).secret, secret);
  EXPECT_NE(launch(with(kTorchrun, "MASTER_ADDR", "node1")).secret, secret);
  EXPECT_NE(launch(with(kTorchrun, "MASTER_PORT", "29501")).secret, secret);
  EXPECT_NE(secret, Secret{});
}

TEST(LaunchEnvironment, DerivesTheSamePortAndSecretInEveryBuild) {
  // Ranks may run different builds. The numbers come from Python's hashlib.blake2b.
  const LaunchEnvironment found = launch(kOpenMpi);
  EXPECT_EQ(found.rootPort, 24199);
  EXPECT_EQ(found.secret, parseSecret("expected", "ba635f47f7992e1c3cf5763527a86f95"));
}

TEST(LaunchEnvironment, ReadsOpenMpiOnOneHost) {
  const LaunchEnvironment found = launch(kOpenMpi);
  EXPECT_EQ(found.launcher, "Open MPI");
  EXPECT_EQ(found.rank, 1);
  EXPECT_EQ(found.nranks, 2);
  EXPECT_EQ(found.localRank, 1);
  EXPECT_EQ(found.rootHost, "127.0.0.1");
  EXPECT_GE(found.rootPort, 20000);
  EXPECT_LT(found.rootPort, 32768);
  const LaunchEnvironment other = launch(with(kOpenMpi, "PMIX_NAMESPACE", "prterun-host-78@1"));
  EXPECT_NE(other.rootPort, found.rootPort);
  EXPECT_NE(other.secret, found.secret);
}

TEST(LaunchEnvironment, AsksForARootWhenOpenMpiSpansHosts) {
  const Environment twoHosts = with(kOpenMpi, "OMPI_COMM_WORLD_SIZE", "4");
  const Refusal refused = refusal(twoHosts);
  EXPECT_EQ(refused.result, moeInvalidUsage);
  EXPECT_EQ(
      refused.sentence,
      "Open MPI started 4 ranks, 2 of them on this host: set MOECOMM_ROOT to host:port, where host runs rank 0 and "
      "port is free (mpirun -x MOECOMM_ROOT)");
  EXPECT_EQ(launch(with(twoHosts, "MOECOMM_ROOT", "a:99")).rootPort, 99);
}

TEST(LaunchEnvironment, AsksForARootWhenOpenMpiTellsNoJob) {
  EXPECT_EQ(refusal(without(kOpenMpi, "PMIX_NAMESPACE")).result, moeInvalidUsage);
  EXPECT_EQ(launch(with(without(kOpenMpi, "PMIX_NAMESPACE"), "OMPI_MCA_ess_base_jobid", "9")).rootHost, "127.0.0.1");
}

TEST(LaunchEnvironment, ReadsSlurmBeforeItsPmi) {
  const LaunchEnvironment found = launch(kSlurm);
  EXPECT_EQ(found.launcher, "Slurm");
  EXPECT_EQ(found.rank, 6);
  EXPECT_EQ(found.nranks, 16);
  EXPECT_EQ(found.localRank, 2);
  EXPECT_EQ(found.rootHost, "gpu07");
  EXPECT_NE(launch(with(kSlurm, "SLURM_STEP_ID", "1")).rootPort, found.rootPort);
}

TEST(LaunchEnvironment, CountsTheTasksOfTheSlurmStep) {
  EXPECT_EQ(launch(with(kSlurm, "SLURM_STEP_NUM_TASKS", "8")).nranks, 8);
}

TEST(LaunchEnvironment, FindsTheFirstHostOfASlurmNodeList) {
  const auto host = [](const char* list) { return launch(with(kSlurm, "SLURM_STEP_NODELIST", list)).rootHost; };
  EXPECT_EQ(host("solo"), "solo");
  EXPECT_EQ(host("b,a"), "b");
  EXPECT_EQ(host("n[3,5]"), "n3");
  EXPECT_EQ(host("n[10]"), "n10");
  EXPECT_EQ(host("a-b-[001-128]"), "a-b-001");
  // The list is not simple, so the launch node is taken.
  EXPECT_EQ(host("r[0-1]n[0-3]"), "192.0.2.9");
  EXPECT_EQ(host("n[1-2"), "192.0.2.9");
  EXPECT_EQ(host("n[]"), "192.0.2.9");
}

TEST(LaunchEnvironment, AsksForARootWhenSlurmDoesNotTellWhereRank0Runs) {
  const Environment silent = without(without(kSlurm, "SLURM_STEP_NODELIST"), "SLURM_LAUNCH_NODE_IPADDR");
  const Refusal refused = refusal(silent);
  EXPECT_EQ(refused.result, moeInvalidUsage);
  EXPECT_NE(refused.sentence.find("MOECOMM_ROOT"), std::string::npos);
  EXPECT_EQ(launch(with(silent, "MOECOMM_ROOT", "a:99")).rootHost, "a");
}

TEST(LaunchEnvironment, ReadsAPmiWithARoot) {
  const LaunchEnvironment found = launch(kPmi);
  EXPECT_EQ(found.launcher, "PMI");
  EXPECT_EQ(found.rootHost, "2001:db8::7");
  EXPECT_EQ(found.localRank, -1);
  EXPECT_EQ(refusal(without(kPmi, "MOECOMM_ROOT")).sentence, "launched by PMI, but MOECOMM_ROOT is not set");
}

TEST(LaunchEnvironment, PrefersLaunchersInTheDocumentedOrder) {
  Environment all;
  for (const Environment* part : {&kMoerun, &kTorchrun, &kOpenMpi, &kSlurm}) all.insert(part->begin(), part->end());
  EXPECT_EQ(launch(all).launcher, "moerun");
  all.erase("MOECOMM_RANK");
  all.erase("MOECOMM_NRANKS");
  EXPECT_EQ(launch(all).launcher, "torchrun");
  all.erase("WORLD_SIZE");
  EXPECT_EQ(launch(all).launcher, "Open MPI");
  all.erase("OMPI_COMM_WORLD_RANK");
  EXPECT_EQ(launch(all).launcher, "Slurm");
  all.erase("SLURM_PROCID");
  EXPECT_EQ(launch(all).launcher, "PMI");
}

TEST(LaunchEnvironment, SaysWhatItLookedForWhenThereIsNoLauncher) {
  const Refusal refused = refusal({{"MOECOMM_ROOT", "a:1"}, {"RANK", "0"}, {"OMPI_COMM_WORLD_RANK", ""}});
  EXPECT_EQ(refused.result, moeInvalidUsage);
  for (const char* name : {"MOECOMM_RANK", "RANK", "WORLD_SIZE", "OMPI_COMM_WORLD_RANK", "SLURM_PROCID", "PMI_RANK"}) {
    EXPECT_NE(refused.sentence.find(name), std::string::npos) << name;
  }
}

TEST(LaunchEnvironment, RefusesMalformedValues) {
  const auto sentence = [](const char* name, const char* value) {
    const Refusal refused = refusal(with(kMoerun, name, value));
    EXPECT_EQ(refused.result, moeInvalidArgument) << name << " = " << value;
    return refused.sentence;
  };
  EXPECT_EQ(sentence("MOECOMM_RANK", "8"), "MOECOMM_RANK is \"8\"; it must be a whole number from 0 to 7");
  EXPECT_EQ(sentence("MOECOMM_RANK", "x"), "MOECOMM_RANK is \"x\"; it must be a whole number from 0 to 7");
  EXPECT_EQ(sentence("MOECOMM_NRANKS", "0"), "MOECOMM_NRANKS is \"0\"; it must be a whole number from 1 to 1024");
  for (const char* root :
       {"host", ":1", "host:", "host:0", "host:65536", "host:1x", "::1:80", "[::1:80", "[]:80", "a b:1"}) {
    EXPECT_NE(sentence("MOECOMM_ROOT", root).find("MOECOMM_ROOT is \""), std::string::npos) << root;
  }
}

TEST(LaunchEnvironment, DoesNotRepeatASecretInItsMessages) {
  for (const char* secret : {"short", "000102030405060708090a0b0c0d0e0g", "000102030405060708090a0b0c0d0e0f00"}) {
    const Refusal refused = refusal(with(kMoerun, "MOECOMM_SECRET", secret));
    EXPECT_EQ(refused.result, moeInvalidArgument);
    EXPECT_EQ(refused.sentence, "MOECOMM_SECRET is not 32 hexadecimal digits");
  }
}

TEST(LaunchEnvironment, RefusesAPortThatTorchrunLeavesNoRoomAfter) {
  EXPECT_EQ(refusal(with(kTorchrun, "MASTER_PORT", "65535")).sentence,
            "MASTER_PORT is \"65535\"; it must be a whole number from 1 to 65534");
}

}  // namespace
}  // namespace moe::test
