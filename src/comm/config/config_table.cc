#include "comm/config/config_table.h"

#include <fmt/format.h>

#include <array>
#include <iterator>

#include "comm/config/config.h"
#include "device/view/remote_view.h"

namespace moe {
namespace {

constexpr std::array kBackends = {Choice{"auto", moeBackendAuto}, Choice{"host", moeBackendHost},
                                  Choice{"cuda", moeBackendCuda}};
constexpr std::array kModes = {Choice{"both", moeModeAuto}, Choice{"ht", moeModeHt}, Choice{"ll", moeModeLl}};
constexpr std::array kLevels = {Choice{"none", moeLogNone}, Choice{"error", moeLogError}, Choice{"warn", moeLogWarn},
                                Choice{"info", moeLogInfo}, Choice{"debug", moeLogDebug}, Choice{"trace", moeLogTrace}};
constexpr std::array kBulkChoices = {Choice{"auto", static_cast<std::int32_t>(Bulk::automatic)},
                                     Choice{"on", static_cast<std::int32_t>(Bulk::on)},
                                     Choice{"off", static_cast<std::int32_t>(Bulk::off)}};

template <class Enum>
constexpr Choice choice(const char* word, Enum value) {
  return {word, static_cast<std::int32_t>(value)};
}
constexpr std::array kWindowSharings = {choice("auto", WindowSharing::automatic), choice("fd", WindowSharing::fd),
                                        choice("ipc", WindowSharing::ipc), choice("fabric", WindowSharing::fabric)};
constexpr std::array kHostSimds = {choice("auto", HostSimd::automatic), choice("none", HostSimd::none),
                                   choice("avx2", HostSimd::avx2), choice("avx512", HostSimd::avx512)};
constexpr std::array kLinkLayers = {choice("auto", topology::LinkLayer::automatic),
                                    choice("infiniband", topology::LinkLayer::infiniBand),
                                    choice("ethernet", topology::LinkLayer::ethernet)};
constexpr std::array kGidFamilies = {choice("auto", topology::GidFamily::automatic),
                                     choice("ipv4", topology::GidFamily::ipv4),
                                     choice("ipv6", topology::GidFamily::ipv6)};
constexpr std::array kDoorbells = {choice("auto", topology::Doorbell::automatic),
                                   choice("steps", topology::Doorbell::steps),
                                   choice("thread", topology::Doorbell::thread)};
constexpr std::array kSwitch = {Choice{"on", 1}, Choice{"off", 0}};
constexpr std::array kTransports = {Choice{"auto", 0}, Choice{"tcp", moeTransportTcp},
                                    Choice{"verbs", moeTransportVerbs}, Choice{"ibgda", moeTransportIbgda}};
constexpr std::array kMtus = {Choice{"256", 256}, Choice{"512", 512}, Choice{"1024", 1024}, Choice{"2048", 2048},
                              Choice{"4096", 4096}};

using User = moeConfig_t;
using Rdma = topology::RdmaSettings;
using None = std::monostate;

const Setting kSettings[] = {
    {"MOECOMM_BACKEND", "backend", "auto", nullptr, std::span<const Choice>(kBackends),
     "Which backend runs the work; auto takes cuda if a usable GPU is there.", &Config::backend, &User::backend},
    {"MOECOMM_DEVICE", "device", "-1", "-1 (the calling thread's current device)", IntegerRange{-1, 1023},
     "CUDA ordinal of this rank's GPU.", &Config::device, &User::device, -1},
    {"MOECOMM_MODES", "modes", "both", nullptr, std::span<const Choice>(kModes), "The modes whose buffers are made.",
     &Config::modes, &User::modes},
    {"MOECOMM_TOKENS_MAX", "tokensMax", "4096", nullptr, IntegerRange{1, Limits::kTokens},
     "High throughput: most tokens that a rank sends in one call.", &Config::tokensMax, &User::tokensMax},
    {"MOECOMM_LL_TOKENS_MAX", "llTokensMax", "128", nullptr, IntegerRange{1, Limits::kLlTokens},
     "Low latency: most tokens that a rank sends in one call.", &Config::llTokensMax, &User::llTokensMax},
    {"MOECOMM_ROW_BYTES_MAX", "rowBytesMax", "16384", nullptr,
     IntegerRange{Limits::kRowAlignment, Limits::kRowBytes, Limits::kRowAlignment}, "Most bytes of one row.",
     &Config::rowBytesMax, &User::rowBytesMax},
    {"MOECOMM_SIDE_BYTES_MAX", "sideBytesMax", "0", "0 (no side payload)",
     IntegerRange{0, Limits::kSideBytes, Limits::kRowAlignment}, "Most bytes of one row's side payload.",
     &Config::sideBytesMax, &User::sideBytesMax},
    {"MOECOMM_TOPK_MAX", "topkMax", "8", nullptr, IntegerRange{1, Limits::kTopk}, "Most experts of one token.",
     &Config::topkMax, &User::topkMax},
    {"MOECOMM_EXPERTS_MAX", "expertsMax", "1024", nullptr, IntegerRange{1, Limits::kExperts},
     "Most experts over all ranks.", &Config::expertsMax, &User::expertsMax},
    {"MOECOMM_TIMEOUT_MS", "timeoutMs", "30000", nullptr, IntegerRange{1, Limits::kTimeoutMs},
     "Every wait for another rank ends within this many milliseconds.", &Config::timeoutMs, &User::timeoutMs},
    {"MOECOMM_SMS", "sms", "0", "0 (the library's choice)", IntegerRange{0, Limits::kSms},
     "GPU multiprocessors that one call may use.", &Config::sms, &User::sms},
    {"MOECOMM_STAGING_ROWS", "stagingRows", "0", "0 (ranks times MOECOMM_TOKENS_MAX)",
     IntegerRange{-1, Limits::kArrivingRows},
     "High throughput: rows that may arrive for an output outside the window; -1 makes no staging area.",
     &Config::stagingRows, &User::stagingRows},
    {"MOECOMM_HEAP_BYTES", "heapBytes", "0", "0 (no heap)", IntegerRange{0, Limits::kHeapBytes},
     "Bytes of this rank's window for moeMemAlloc.", &Config::heapBytes, &User::heapBytes},
    {"MOECOMM_DOMAIN_SIZE", "domainSize", "0", "0 (as many as reach each other, in domains of one size)",
     IntegerRange{0, Limits::kRanks},
     "Ranks of a domain, which reach each other by loads and stores: those of a host, or of a clique of the NVLink "
     "fabric. Fewer than reach each other make several domains.",
     &Config::domainSize, &User::domainSize},
    {"MOECOMM_TRANSPORT", "transport", "auto", nullptr, std::span<const Choice>(kTransports),
     "What carries data between domains; auto takes the fastest that works.", &Config::transport, &User::transport},
    {"MOECOMM_LL_SETS", "llSets", "2", nullptr, IntegerRange{1, kLlSetsMax},
     "Low latency: sets of slots. So many handles have slots of their own and may have operations outstanding.",
     &Config::llSets, &User::llSets},
    {"MOECOMM_STAGING_AREAS", "stagingAreas", "1", nullptr, IntegerRange{1, kStagingAreasMax},
     "High throughput: staging areas, each of MOECOMM_STAGING_ROWS rows. So many operations that need one may be "
     "outstanding.",
     &Config::stagingAreas, &User::stagingAreas},
    {"MOECOMM_TUNING", nullptr, "", "none", FreeText{"path"},
     "File with thresholds of mode AUTO, as moe_perf --tune writes it. Rank 0 reads it for all; on other ranks the "
     "variable has no effect.",
     &Config::tuningFile, None{}},
    {"MOECOMM_INTERFACE", "interfaceName", "", "chosen", FreeText{"interface name"},
     "Network interface that the ranks meet on, eth0 for example.", &Config::interfaceName, &User::interfaceName},
    {"MOECOMM_LOG_LEVEL", "logLevel", "warn", nullptr, std::span<const Choice>(kLevels), "How much is logged.",
     &Config::logLevel, &User::logLevel},
    {"MOECOMM_LOG_FILE", nullptr, "", "standard error", FreeText{"path"},
     "File that log lines are added to, if the program takes none; %h becomes the host name, %p the process id.",
     &Config::logFile, None{}},
    {"MOECOMM_RECORDER", nullptr, "on", nullptr, std::span<const Choice>(kSwitch),
     "Record the latest steps of every communicator (moeCommDump).", &Config::recorder, None{}},
    {"MOECOMM_DUMP_FOLDER", "dumpFolder", "", "none", FreeText{"path"},
     "Folder to which a rank writes its latest steps when its communicator fails, and moeCommDump without a path.",
     &Config::dumpFolder, &User::dumpFolder},
    {"MOECOMM_WATCH_FOLDER", "watchFolder", "", "none", FreeText{"path"},
     "Folder, writable for this user alone, in which each rank offers a socket to moe_top.", &Config::watchFolder,
     &User::watchFolder},
    {"MOECOMM_BULK", nullptr, "auto", nullptr, std::span<const Choice>(kBulkChoices),
     "Use the GPU's bulk-copy engine; auto uses it where it exists.", &Config::bulk, None{}},
    {"MOECOMM_WINDOW", nullptr, "auto", "auto (fd where the driver can, and fabric between hosts)",
     std::span<const Choice>(kWindowSharings),
     "How processes map each other's GPU memory: by file descriptors (fd), by CUDA IPC (ipc), or by handles of the "
     "NVLink fabric, on one host too (fabric).",
     &Config::window, None{}},
    {"MOECOMM_HOST_THREADS", nullptr, "0", "0 (the processors of the rank's share, at most 8)",
     IntegerRange{0, HostOptions::kThreadsMax},
     "Host backend: threads that run one call, the caller's among them. Small calls take fewer.", &Config::hostThreads,
     None{}},
    {"MOECOMM_HOST_SIMD", nullptr, "auto", "auto (the best that the processor has)",
     std::span<const Choice>(kHostSimds),
     "Host backend: instructions for sums, casts and counts. The results have the same bits.", &Config::hostSimd,
     None{}},
    {"MOECOMM_NICS", nullptr, "", "chosen", FreeText{"adapters"},
     "RDMA: adapters to use, mlx5_0,mlx5_1:2 for example, or for each GPU 0=mlx5_0;1=mlx5_1.", &Rdma::nics, None{}},
    {"MOECOMM_NICS_PER_GPU", nullptr, "0", "0 (2 if every GPU has two on its switch, else 1)", IntegerRange{0, 4},
     "RDMA: adapters of each GPU, unless MOECOMM_NICS names them for each, and of each rank without a GPU (0: 1).",
     &Rdma::nicsPerGpu, None{}},
    {"MOECOMM_RDMA_LINK_LAYER", nullptr, "auto", "auto (that of most ports)", std::span<const Choice>(kLinkLayers),
     "RDMA: link layer of the ports to use.", &Rdma::linkLayer, None{}},
    {"MOECOMM_RDMA_GID_INDEX", nullptr, "-1", "-1 (chosen)", IntegerRange{-1, 255},
     "RDMA: index of the address to use in the port's table.", &Rdma::gidIndex, None{}},
    {"MOECOMM_RDMA_GID_FAMILY", nullptr, "auto", "auto (ipv4 before ipv6)", std::span<const Choice>(kGidFamilies),
     "RDMA on Ethernet: family of the address to use.", &Rdma::gidFamily, None{}},
    {"MOECOMM_RDMA_GID_PREFIX", nullptr, "", "any", FreeText{"address/bits"},
     "RDMA on Ethernet: where the address to use must lie, 10.1.0.0/16 for example.", &Rdma::gidPrefix, None{}},
    {"MOECOMM_RDMA_MTU", nullptr, "4096", nullptr, std::span<const Choice>(kMtus),
     "RDMA: most bytes of one packet; less if a port has less.", &Rdma::mtu, None{}},
    {"MOECOMM_RDMA_TRAFFIC_CLASS", nullptr, "0", nullptr, IntegerRange{0, 255},
     "RDMA on Ethernet: traffic class, four times the DSCP.", &Rdma::trafficClass, None{}},
    {"MOECOMM_RDMA_SERVICE_LEVEL", nullptr, "0", nullptr, IntegerRange{0, 15}, "RDMA: service level.",
     &Rdma::serviceLevel, None{}},
    {"MOECOMM_RDMA_QUEUE_PAIRS", nullptr, "0", "0 (4, or fewer with many peers)", IntegerRange{0, 16},
     "RDMA: queue pairs for each peer; the same on all ranks.", &Rdma::queuePairs, None{}},
    {"MOECOMM_RDMA_ACK_TIMEOUT", nullptr, "0", "0 (from MOECOMM_TIMEOUT_MS, 14 to 18)", IntegerRange{0, 31},
     "RDMA: a packet is sent again after 4.096 us times 2 to the power of this.", &Rdma::ackTimeout, None{}},
    {"MOECOMM_RDMA_RETRIES", nullptr, "7", nullptr, IntegerRange{0, 7},
     "RDMA: times that a packet is sent again before the peer counts as lost.", &Rdma::retries, None{}},
    {"MOECOMM_RDMA_THREADS", nullptr, "0", "0 (2)", IntegerRange{0, kPutRingsMax},
     "RDMA, verbs: threads that post for steps, as many for each adapter.", &Rdma::threads, None{}},
    {"MOECOMM_RDMA_DOORBELL", nullptr, "auto", "auto (steps, if they can)", std::span<const Choice>(kDoorbells),
     "RDMA, ibgda: who writes the adapter's doorbell registers.", &Rdma::doorbell, None{}},
    {"MOECOMM_SOFT_UAR", nullptr, "0", nullptr, IntegerRange{0, 1},
     "RDMA, ibgda: 1 takes the adapter's registers for memory, as those of an adapter in software are; for tests.",
     &Rdma::softUar, None{}},
    {"SYSFS_PATH", nullptr, "/sys", nullptr, FreeText{"path"},
     "RDMA: where adapters are looked for. A variable of libibverbs, which looks there too; for tests.", &Rdma::sys,
     None{}},
    {"MOECOMM_RANK", nullptr, "", "set by moerun", IntegerRange{0, Limits::kRanks - 1},
     "moeCommInitFromEnv: this rank.", None{}, None{}},
    {"MOECOMM_NRANKS", nullptr, "", "set by moerun", IntegerRange{1, Limits::kRanks},
     "moeCommInitFromEnv: number of ranks.", None{}, None{}},
    {"MOECOMM_LOCAL_RANK", nullptr, "", "set by moerun", IntegerRange{0, Limits::kRanks - 1},
     "moeCommInitFromEnv: this rank's index on its host.", None{}, None{}},
    {"MOECOMM_LOCAL_NRANKS", nullptr, "", "set by moerun", IntegerRange{1, Limits::kRanks},
     "For programs: number of ranks on this rank's host.", None{}, None{}},
    {"MOECOMM_ROOT", nullptr, "", "set by moerun; else from the launcher", FreeText{"host:port"},
     "moeCommInitFromEnv: where rank 0 waits for the others.", None{}, None{}},
    {"MOECOMM_SECRET", nullptr, "", "set by moerun; else from the job's id", FreeText{"32 hexadecimal digits"},
     "moeCommInitFromEnv: what every connection must present.", None{}, None{}},
    {"MOECOMM_LIBRARY", nullptr, "", "looked for", FreeText{"path"}, "Python: the library to load.", None{}, None{}},
    {"MOECOMM_DEEP_EP_IN_FLIGHT", nullptr, "8", nullptr, IntegerRange{1, INT32_MAX},
     "moecomm.deep_ep: dispatches of one shape whose handles may be in use.", None{}, None{}},
    {"MOECOMM_DEEP_EP_LOW_LATENCY_IN_FLIGHT", nullptr, "4", nullptr, IntegerRange{2, INT32_MAX - 1, 2},
     "moecomm.deep_ep: the same for low_latency_dispatch.", None{}, None{}},
    {"MOECOMM_DEEP_EP_SUM_WEIGHTS", nullptr, "on", nullptr, std::span<const Choice>(kSwitch),
     "moecomm.deep_ep: combine sums the weights over the ranks of a token.", None{}, None{}},
    {"MOECOMM_DEEP_EP_DEVICE", nullptr, "", "the current GPU if there is one", FreeText{"cpu or cuda"},
     "moecomm.deep_ep: where the tensors of a Buffer are.", None{}, None{}},
};

// Variables that tests and their scripts read.
constexpr const char* kTestVariables[] = {"MOECOMM_UPDATE_DOCS",  "MOECOMM_SIM_SEED",     "MOECOMM_RACK",
                                          "MOECOMM_RACK_IMPORTS", "MOECOMM_RXE_VM_ACCEL", "MOECOMM_RXE_VM_CACHE",
                                          "MOECOMM_RXE_VM_KERNEL"};

std::string describeRange(const IntegerRange& range) {
  if (range.multiple == 1) return fmt::format("{} to {}", range.min, range.max);
  return fmt::format("multiples of {} from {} to {}", range.multiple, range.min, range.max);
}

}  // namespace

std::span<const Setting> settings() {
  return kSettings;
}

std::vector<std::string> knownVariables() {
  std::vector<std::string> names(std::begin(kTestVariables), std::end(kTestVariables));
  for (const Setting& setting : settings()) names.emplace_back(setting.variable);
  return names;
}

std::string describeAllowed(const Allowed& allowed) {
  if (const auto* range = std::get_if<IntegerRange>(&allowed)) return describeRange(*range);
  if (const auto* text = std::get_if<FreeText>(&allowed)) return text->form;
  std::string words;
  for (const Choice& choice : std::get<std::span<const Choice>>(allowed)) {
    if (!words.empty()) words += ", ";
    words += choice.word;
  }
  return words;
}

std::string settingsAsMarkdown() {
  std::string table = "| variable | field of moeConfig_t | values | default | meaning |\n|---|---|---|---|---|\n";
  for (const Setting& setting : settings()) {
    const std::string field = setting.field != nullptr ? fmt::format("`{}`", setting.field) : std::string("-");
    const char* shown = setting.defaultShown != nullptr ? setting.defaultShown : setting.defaultText;
    table += fmt::format("| `{}` | {} | {} | {} | {} |\n", setting.variable, field, describeAllowed(setting.allowed),
                         shown, setting.meaning);
  }
  return table;
}

}  // namespace moe
