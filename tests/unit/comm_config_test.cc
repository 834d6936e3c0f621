#include <gtest/gtest.h>

#include <cstddef>
#include <cstdlib>

#include "base/error.h"
#include "comm/config/config.h"
#include "comm/config/config_table.h"
#include "unit/fake_environment.h"

namespace moe::test {
namespace {

constexpr moeConfig_t kUnset = MOE_CONFIG_INITIALIZER;

Config resolve(const moeConfig_t* user, const Environment& environment = {}) {
  return resolveConfig(user, lookupIn(environment));
}

std::string refusal(const moeConfig_t* user, const Environment& environment = {}) {
  try {
    resolve(user, environment);
  } catch (const Error& error) {
    EXPECT_EQ(error.result(), moeInvalidArgument);
    return error.what();
  }
  return "not refused";
}

TEST(Config, HasTheDocumentedDefaults) {
  for (const moeConfig_t* user : {static_cast<const moeConfig_t*>(nullptr), &kUnset}) {
    const Config config = resolve(user);
    EXPECT_EQ(config.backend, moeBackendAuto);
    EXPECT_EQ(config.device, -1);
    EXPECT_TRUE(config.ht() && config.ll());
    EXPECT_EQ(config.tokensMax, 4096);
    EXPECT_EQ(config.llTokensMax, 128);
    EXPECT_EQ(config.rowBytesMax, 16384);
    EXPECT_EQ(config.sideBytesMax, 0);
    EXPECT_EQ(config.topkMax, 8);
    EXPECT_EQ(config.expertsMax, 1024);
    EXPECT_EQ(config.timeoutMs, 30000);
    EXPECT_EQ(config.sms, 0);
    EXPECT_EQ(config.logLevel, moeLogWarn);
    EXPECT_EQ(config.stagingRows, 0);
    EXPECT_EQ(config.heapBytes, 0);
    EXPECT_EQ(config.llSets, 2);
    EXPECT_EQ(config.stagingAreas, 1);
    EXPECT_EQ(config.bulk, static_cast<std::int32_t>(Bulk::automatic));
    EXPECT_EQ(config.window, static_cast<std::int32_t>(WindowSharing::automatic));
    EXPECT_EQ(config.interfaceName, "");
    EXPECT_EQ(config.logFile, "");
  }
}

TEST(Config, TakesEveryVariable) {
  const Environment environment = {
      {"MOECOMM_BACKEND", "cuda"},       {"MOECOMM_DEVICE", "3"},         {"MOECOMM_MODES", "ll"},
      {"MOECOMM_TOKENS_MAX", "8192"},    {"MOECOMM_LL_TOKENS_MAX", "64"}, {"MOECOMM_ROW_BYTES_MAX", "4096"},
      {"MOECOMM_SIDE_BYTES_MAX", "256"}, {"MOECOMM_TOPK_MAX", "6"},       {"MOECOMM_EXPERTS_MAX", "256"},
      {"MOECOMM_TIMEOUT_MS", "500"},     {"MOECOMM_SMS", "20"},           {"MOECOMM_STAGING_ROWS", "-1"},
      {"MOECOMM_HEAP_BYTES", "1048576"}, {"MOECOMM_INTERFACE", "lo"},     {"MOECOMM_LOG_LEVEL", "none"},
      {"MOECOMM_LOG_FILE", "/tmp/%p"},   {"MOECOMM_BULK", "off"},         {"MOECOMM_WINDOW", "ipc"},
      {"MOECOMM_LL_SETS", "3"},          {"MOECOMM_STAGING_AREAS", "2"}};
  const Config config = resolve(nullptr, environment);
  EXPECT_EQ(config.backend, moeBackendCuda);
  EXPECT_EQ(config.device, 3);
  EXPECT_TRUE(config.ll() && !config.ht());
  EXPECT_EQ(config.tokensMax, 8192);
  EXPECT_EQ(config.llTokensMax, 64);
  EXPECT_EQ(config.rowBytesMax, 4096);
  EXPECT_EQ(config.sideBytesMax, 256);
  EXPECT_EQ(config.topkMax, 6);
  EXPECT_EQ(config.expertsMax, 256);
  EXPECT_EQ(config.timeoutMs, 500);
  EXPECT_EQ(config.sms, 20);
  EXPECT_EQ(config.stagingRows, -1);
  EXPECT_EQ(config.heapBytes, 1048576);
  EXPECT_EQ(config.llSets, 3);
  EXPECT_EQ(config.stagingAreas, 2);
  EXPECT_EQ(config.interfaceName, "lo");
  EXPECT_EQ(config.logLevel, moeLogNone);
  EXPECT_EQ(config.logFile, "/tmp/%p");
  EXPECT_EQ(config.bulk, static_cast<std::int32_t>(Bulk::off));
  EXPECT_EQ(config.window, static_cast<std::int32_t>(WindowSharing::ipc));
}

TEST(Config, TakesTheVariablesOfRdma) {
  const Environment environment = {{"MOECOMM_NICS", "mlx5_0,mlx5_1"},
                                   {"MOECOMM_NICS_PER_GPU", "2"},
                                   {"MOECOMM_RDMA_LINK_LAYER", "ethernet"},
                                   {"MOECOMM_RDMA_GID_INDEX", "3"},
                                   {"MOECOMM_RDMA_GID_FAMILY", "ipv6"},
                                   {"MOECOMM_RDMA_GID_PREFIX", "fd00::/8"},
                                   {"MOECOMM_RDMA_MTU", "2048"},
                                   {"MOECOMM_RDMA_TRAFFIC_CLASS", "104"},
                                   {"MOECOMM_RDMA_SERVICE_LEVEL", "3"},
                                   {"MOECOMM_RDMA_QUEUE_PAIRS", "8"},
                                   {"MOECOMM_RDMA_ACK_TIMEOUT", "20"},
                                   {"MOECOMM_RDMA_RETRIES", "0"},
                                   {"MOECOMM_RDMA_THREADS", "3"},
                                   {"SYSFS_PATH", "/tmp/sys"}};
  const topology::RdmaSettings rdma = resolve(nullptr, environment).rdma;
  EXPECT_EQ(rdma.nics, "mlx5_0,mlx5_1");
  EXPECT_EQ(rdma.nicsPerGpu, 2);
  EXPECT_EQ(rdma.linkLayer, static_cast<std::int32_t>(topology::LinkLayer::ethernet));
  EXPECT_EQ(rdma.gidIndex, 3);
  EXPECT_EQ(rdma.gidFamily, static_cast<std::int32_t>(topology::GidFamily::ipv6));
  EXPECT_EQ(rdma.gidPrefix, "fd00::/8");
  EXPECT_EQ(rdma.mtu, 2048);
  EXPECT_EQ(rdma.trafficClass, 104);
  EXPECT_EQ(rdma.serviceLevel, 3);
  EXPECT_EQ(rdma.queuePairs, 8);
  EXPECT_EQ(rdma.ackTimeout, 20);
  EXPECT_EQ(rdma.retries, 0);
  EXPECT_EQ(rdma.threads, 3);
  EXPECT_EQ(rdma.sys, "/tmp/sys");
}

TEST(Config, HasTheSameDefaultsOfRdmaAsTheStruct) {
  const topology::RdmaSettings rdma = resolve(nullptr).rdma, other;
  EXPECT_EQ(rdma.mtu, other.mtu);
  EXPECT_EQ(rdma.gidIndex, other.gidIndex);
  EXPECT_EQ(rdma.retries, other.retries);
  EXPECT_EQ(rdma.ackTimeout, other.ackTimeout);
  EXPECT_EQ(rdma.sys, other.sys);
  EXPECT_EQ(refusal(nullptr, {{"MOECOMM_RDMA_MTU", "1500"}}),
            "MOECOMM_RDMA_MTU is \"1500\"; it must be one of 256, 512, 1024, 2048, 4096");
}

TEST(Config, PrefersTheFieldToTheVariable) {
  moeConfig_t user = kUnset;
  user.device = 0;
  user.tokensMax = 100;
  user.heapBytes = 4096;
  user.interfaceName = "eth7";
  user.logLevel = moeLogTrace;
  const Config config = resolve(&user, {{"MOECOMM_DEVICE", "5"},
                                        {"MOECOMM_TOKENS_MAX", "200"},
                                        {"MOECOMM_HEAP_BYTES", "8192"},
                                        {"MOECOMM_INTERFACE", "lo"},
                                        {"MOECOMM_LOG_LEVEL", "error"}});
  EXPECT_EQ(config.device, 0);
  EXPECT_EQ(config.tokensMax, 100);
  EXPECT_EQ(config.heapBytes, 4096);
  EXPECT_EQ(config.interfaceName, "eth7");
  EXPECT_EQ(config.logLevel, moeLogTrace);
}

TEST(Config, CountsAnEmptyVariableAsUnset) {
  EXPECT_EQ(resolve(nullptr, {{"MOECOMM_TOPK_MAX", ""}}).topkMax, 8);
}

TEST(Config, RefusesMalformedVariables) {
  for (const char* text : {"12x", " 12", "12 ", "+12", "0x10", "1e3", "twelve", "99999999999999999999", "-"}) {
    EXPECT_EQ(refusal(nullptr, {{"MOECOMM_TOKENS_MAX", text}}),
              std::string("MOECOMM_TOKENS_MAX is \"") + text + "\"; it must be a whole number from 1 to 1048576");
  }
  EXPECT_EQ(refusal(nullptr, {{"MOECOMM_BACKEND", "CUDA"}}),
            "MOECOMM_BACKEND is \"CUDA\"; it must be one of auto, host, cuda");
  EXPECT_EQ(refusal(nullptr, {{"MOECOMM_LOG_LEVEL", "3"}}),
            "MOECOMM_LOG_LEVEL is \"3\"; it must be one of none, error, warn, info, debug, trace");
}

TEST(Config, RefusesVariablesOutsideTheirRange) {
  EXPECT_EQ(refusal(nullptr, {{"MOECOMM_TOPK_MAX", "33"}}),
            "MOECOMM_TOPK_MAX is \"33\"; it must be a whole number from 1 to 32");
  EXPECT_EQ(refusal(nullptr, {{"MOECOMM_TOPK_MAX", "0"}}),
            "MOECOMM_TOPK_MAX is \"0\"; it must be a whole number from 1 to 32");
  EXPECT_EQ(refusal(nullptr, {{"MOECOMM_ROW_BYTES_MAX", "100"}}),
            "MOECOMM_ROW_BYTES_MAX is \"100\"; it must be a multiple of 16 from 16 to 1048576");
  EXPECT_EQ(resolve(nullptr, {{"MOECOMM_TOPK_MAX", "32"}}).topkMax, 32);
  EXPECT_EQ(resolve(nullptr, {{"MOECOMM_ROW_BYTES_MAX", "112"}}).rowBytesMax, 112);
}

TEST(Config, RefusesFieldsOutsideTheirRange) {
  moeConfig_t user = kUnset;
  user.topkMax = 33;
  EXPECT_EQ(refusal(&user), "config.topkMax is 33; it must be 1 to 32");
  user = kUnset;
  user.rowBytesMax = 7;
  EXPECT_EQ(refusal(&user), "config.rowBytesMax is 7; it must be a multiple of 16 from 16 to 1048576");
  user = kUnset;
  user.tokensMax = -1;
  EXPECT_EQ(refusal(&user), "config.tokensMax is -1; it must be 1 to 1048576");
  user = kUnset;
  user.device = -2;
  EXPECT_EQ(refusal(&user), "config.device is -2; it must be -1 to 1023");
  user = kUnset;
  user.backend = 3;
  EXPECT_EQ(refusal(&user), "config.backend is 3; it must be one of 0 (auto), 1 (host), 2 (cuda)");
  user = kUnset;
  user.stagingRows = -2;
  EXPECT_EQ(refusal(&user), "config.stagingRows is -2; it must be -1 to 16777215");
  user = kUnset;
  user.llSets = 5;
  EXPECT_EQ(refusal(&user), "config.llSets is 5; it must be 1 to 4");
  user = kUnset;
  user.stagingAreas = 3;
  EXPECT_EQ(refusal(&user), "config.stagingAreas is 3; it must be 1 to 2");
}

TEST(Config, KeepsTheCallersFunctions) {
  moeConfig_t user = kUnset;
  int sinkUser = 0, allocatorUser = 0;
  user.log = [](void*, std::int32_t, const char*) {};
  user.logUser = &sinkUser;
  user.allocate = [](void*, std::size_t, std::int32_t) -> void* { return nullptr; };
  user.free = [](void*, void*, std::size_t, std::int32_t) {};
  user.allocateUser = &allocatorUser;
  const Config config = resolve(&user);
  EXPECT_EQ(config.log, user.log);
  EXPECT_EQ(config.logUser, &sinkUser);
  EXPECT_EQ(config.allocate, user.allocate);
  EXPECT_EQ(config.free, user.free);
  EXPECT_EQ(config.allocateUser, &allocatorUser);
}

TEST(Config, KnowsWhatItHasFromTheEnvironment) {
  moeConfig_t user = kUnset;
  user.topkMax = 4;
  const Config config =
      resolve(&user, {{"MOECOMM_TOPK_MAX", "3"}, {"MOECOMM_SMS", "20"}, {"MOECOMM_NICS", "a"}, {"MOECOMM_BULK", ""}});
  EXPECT_EQ(config.fromEnvironment, (std::vector<std::string>{"MOECOMM_SMS=20", "MOECOMM_NICS=a"}));
}

TEST(Config, RefusesHalfAnAllocator) {
  moeConfig_t user = kUnset;
  user.free = [](void*, void*, std::size_t, std::int32_t) {};
  EXPECT_EQ(refusal(&user), "config.allocate and config.free must be given together");
}

TEST(Config, TakesAnOlderProgramsShorterStruct) {
  struct {
    std::size_t size;
    std::int32_t backend;
    std::int32_t device;
  } older = {16, moeBackendHost, -1};
  const Config config = resolve(reinterpret_cast<const moeConfig_t*>(&older));
  EXPECT_EQ(config.backend, moeBackendHost);
  EXPECT_EQ(config.tokensMax, 4096);

  const std::size_t sizeOnly = sizeof(std::size_t);
  EXPECT_EQ(resolve(reinterpret_cast<const moeConfig_t*>(&sizeOnly)).device, -1);
}

TEST(Config, ReadsTheEnvironmentOfTheProcess) {
  ASSERT_EQ(::setenv("MOECOMM_EXPERTS_MAX", "77", 1), 0);
  EXPECT_EQ(resolveConfig(nullptr).expertsMax, 77);
  ASSERT_EQ(::unsetenv("MOECOMM_EXPERTS_MAX"), 0);
  EXPECT_EQ(resolveConfig(nullptr).expertsMax, 1024);
}

TEST(ConfigTable, NamesEveryVariableOnceWithAPrefix) {
  std::map<std::string, int> seen;
  for (const Setting& setting : settings()) {
    const std::string name = setting.variable;
    EXPECT_TRUE(name.rfind("MOECOMM_", 0) == 0 || name == "SYSFS_PATH") << name;  // SYSFS_PATH is libibverbs'
    EXPECT_EQ(++seen[setting.variable], 1) << setting.variable;
  }
}

TEST(ConfigTable, CoversEveryFieldOfTheStructButThePointersOfTheProgram) {
  std::size_t fields = 0;
  for (const Setting& setting : settings()) {
    EXPECT_EQ(setting.field != nullptr, !std::holds_alternative<std::monostate>(setting.source)) << setting.variable;
    if (setting.field != nullptr) ++fields;
  }
  // 12 int32, 2 int64 and the interface's name lie between `size` and the log function. After the functions come the
  // fields of domains, the numbers of sets and staging areas, and two folders.
  EXPECT_EQ(offsetof(moeConfig_t, log), sizeof(std::size_t) + 12 * 4 + 2 * 8 + sizeof(char*));
  EXPECT_EQ(offsetof(moeConfig_t, watchFolder), sizeof(moeConfig_t) - sizeof(char*));
  EXPECT_EQ(offsetof(moeConfig_t, dumpFolder), offsetof(moeConfig_t, stagingAreas) + sizeof(std::int32_t));
  EXPECT_EQ(offsetof(moeConfig_t, stagingAreas), offsetof(moeConfig_t, domainSize) + 3 * sizeof(std::int32_t));
  EXPECT_EQ(fields, 21U);
}

}  // namespace
}  // namespace moe::test
