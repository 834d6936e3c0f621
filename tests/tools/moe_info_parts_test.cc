// Tests the answers of moe_info to --check and --explain.
#include <gtest/gtest.h>

#include <stdexcept>
#include <string>
#include <vector>

#include "comm/config/tuning_file.h"
#include "tools/moe_info_explain.h"
#include "tools/moe_info_report.h"

namespace moe::test {
namespace {

using namespace moe::tools;
using topology::NeededFor;
using topology::Presence;

Report reportWithoutCuda() {
  Report report;
  report.backends = {{"host", true, ""}, {"cuda", false, "there is no GPU"}};
  report.betweenHosts = "verbs, not IBGDA";
  report.prerequisites = {{"libibverbs", Presence::present, "it is there", "", NeededFor::verbs},
                          {"locked memory", Presence::missing, "64 KiB", "raise ulimit -l", NeededFor::verbs},
                          {"device nodes", Presence::missing, "none", "", NeededFor::verbs},
                          {"dma-buf", Presence::missing, "no driver", "load it", NeededFor::gpuMemory},
                          {"mlx5", Presence::missing, "no adapter", "buy one", NeededFor::ibgda}};
  return report;
}

TEST(MoeInfoCheck, SaysALineForEachReason) {
  Report report = reportWithoutCuda();
  EXPECT_EQ(toText(checkUsability(report, Checked::host)), "host: usable\n");
  EXPECT_EQ(toText(checkUsability(report, Checked::cuda)), "cuda: not usable: there is no GPU\n");
  const std::vector<Usability> rdma = checkUsability(report, Checked::rdma);
  EXPECT_FALSE(rdma.at(0).usable());
  EXPECT_EQ(toText(rdma),
            "rdma: not usable: locked memory: 64 KiB; to do: raise ulimit -l\nrdma: not usable: device nodes: none\n");
  report.topology.gpus.gpus.resize(1);
  EXPECT_EQ(checkUsability(report, Checked::rdma).at(0).reasons.size(), 3U) << "rows of GPUs need more";
  report.prerequisites.clear();
  EXPECT_EQ(toText(checkUsability(report, Checked::rdma)), "rdma: usable: verbs, not IBGDA\n");
  report.rdma.nics.reason = "no adapters";
  EXPECT_EQ(toText(checkUsability(report, Checked::rdma)), "rdma: not usable: no adapters\n");
  EXPECT_EQ(checkUsability(report, Checked::all).size(), 3U);
}

std::string lineOf(const std::string& text, const std::string& name) {
  const std::size_t begin = text.find(name + ": ");
  return begin == std::string::npos ? "" : text.substr(begin, text.find('\n', begin) - begin);
}

TEST(MoeInfoExplain, SaysWhichModeIsChosenAndWhy) {
  ExplainedShape shape;
  shape.layout = moeLayoutRankMajor;
  ExplainingMachine gpus{64, 132, 450, "TCP, not RDMA: no adapter"};
  EXPECT_EQ(lineOf(explain(shape, gpus), "mode"),
            "mode: LL, chosen: a rank sends at most 14.00 MiB (128 tokens to 8 ranks, rows of 14336 bytes), and LL is "
            "taken up to 32.00 MiB (gpu rank-major, built in)");
  shape.tokens = 400;
  EXPECT_EQ(lineOf(explain(shape, gpus), "mode").substr(0, 16), "mode: HT, chosen");
  shape.tokens = 4096;
  EXPECT_EQ(lineOf(explain(shape, gpus), "mode"),
            "mode: HT, chosen: 4096 tokens are more than LL has slots for (llTokensMax 512)");
  shape.mode = moeModeLl;
  EXPECT_EQ(lineOf(explain(shape, gpus), "mode"), "mode: LL, asked for");
  shape = {};
  shape.backend = moeBackendHost;
  shape.ranks = 4;
  shape.tokens = 1;
  EXPECT_EQ(lineOf(explain(shape, {2, 0, 0, ""}), "mode"),
            "mode: LL, chosen: a rank sends at most 0.05 MiB (1 tokens to 4 ranks, rows of 14336 bytes), and LL is "
            "taken up to 0.12 MiB with fewer processors than ranks of a host (host-shared flat, built in)");
  EXPECT_EQ(lineOf(explain(shape, {8, 0, 0, ""}), "mode").substr(0, 8), "mode: HT");
}

TEST(MoeInfoExplain, NamesTheTuningFileOfAThreshold) {
  ExplainedShape shape;
  shape.layout = moeLayoutRankMajor;
  ExplainingMachine gpus{64,    132,        450,
                         "TCP", "c.tuning", parseTuning("c.tuning", "moecomm-tuning 1\ngpu rank-major 0")};
  EXPECT_EQ(lineOf(explain(shape, gpus), "mode"),
            "mode: HT, chosen: a rank sends at most 14.00 MiB (128 tokens to 8 ranks, rows of 14336 bytes), and LL is "
            "taken up to 0.00 MiB (gpu rank-major of the tuning file c.tuning)");
  shape.layout = moeLayoutExpertMajor;
  EXPECT_NE(lineOf(explain(shape, gpus), "mode").find("up to 32.00 MiB (gpu expert-major, built in)"),
            std::string::npos);
}

TEST(MoeInfoExplain, SaysMultiprocessorsMemoryAndTransport) {
  ExplainedShape shape;
  const ExplainingMachine gpus{64, 132, 450, "TCP, not RDMA: no adapter"};
  std::string text = explain(shape, gpus);
  EXPECT_EQ(lineOf(text, "backend"), "backend: cuda");
  EXPECT_EQ(lineOf(text, "SMs").substr(0, 12), "SMs: at most");
  EXPECT_NE(lineOf(text, "SMs").find(", of 132: chosen by the rows of a call"), std::string::npos) << text;
  EXPECT_EQ(lineOf(text, "transport"),
            "transport: loads and stores between GPUs (CUDA IPC), because all ranks are in one domain");
  shape.sms = 7;
  EXPECT_EQ(lineOf(explain(shape, gpus), "SMs"), "SMs: at most 7 for dispatch and 7 for combine, of 132: asked for");
  shape.domainSize = 4;
  EXPECT_EQ(lineOf(explain(shape, gpus), "transport"),
            "transport: loads and stores between GPUs (CUDA IPC) inside a domain of 4 ranks; between the 2 domains "
            "TCP, not RDMA: no adapter");
  shape.domainSize = 0;
  shape.mode = moeModeLl;
  shape.backend = moeBackendHost;
  text = explain(shape, gpus);
  moeConfig_t config = MOE_CONFIG_INITIALIZER;
  config.modes = moeModeLl;
  config.tokensMax = config.llTokensMax = 128;
  config.rowBytesMax = 14336;
  config.topkMax = 8;
  config.expertsMax = 256;
  moeMemorySize_t bytes = MOE_MEMORY_SIZE_INITIALIZER;
  ASSERT_EQ(moeCommGetMemorySize(8, &config, &bytes), moeSuccess);
  const std::string mib = std::to_string(static_cast<double>(bytes.windowBytes) / (1 << 20));
  EXPECT_EQ(lineOf(text, "memory").substr(0, 12), "memory: " + mib.substr(0, 4)) << text;
  EXPECT_NE(lineOf(text, "memory").find(", 0.00 MiB for HT,"), std::string::npos) << text;
  EXPECT_EQ(lineOf(text, "SMs"), "SMs: none, because the host backend works with threads (MOECOMM_HOST_THREADS)");
}

TEST(MoeInfoExplain, RefusesShapesThatCannotBe) {
  ExplainedShape shape;
  EXPECT_EQ(impossible(shape), "");
  shape.domainSize = 3;
  EXPECT_EQ(impossible(shape), "--domain-size 3 does not divide --ranks 8");
  shape.experts = 4;
  EXPECT_EQ(impossible(shape), "--topk 8 is more than --experts 4");
  shape = {};
  shape.experts = 1 << 30;
  EXPECT_THROW(explain(shape, {}), std::runtime_error) << "more than the library takes";
}

}  // namespace
}  // namespace moe::test
