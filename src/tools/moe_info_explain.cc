#include "tools/moe_info_explain.h"

#include <fmt/format.h>

#include <algorithm>
#include <stdexcept>

#include "backend/cuda_plan.h"
#include "comm/handle/mode_choice.h"

namespace moe::tools {
namespace {

constexpr int kLlTokensOfAuto = 512;  // as moe_perf has it
constexpr int kElementBytes = 2;

std::string mebibytes(std::uint64_t bytes) {
  return fmt::format("{:.2f} MiB", static_cast<double>(bytes) / static_cast<double>(kMebibyte));
}

class Explainer {
 public:
  Explainer(const ExplainedShape& shape, const ExplainingMachine& machine)
      : shape_(shape),
        machine_(machine),
        host_(shape.backend == moeBackendHost || (shape.backend == moeBackendAuto && machine.multiprocessors == 0)),
        rowBytes_(shape.hidden * kElementBytes),
        domainSize_(shape.domainSize == 0 ? shape.ranks : shape.domainSize),
        domains_(shape.ranks / domainSize_),
        llTokensMax_(shape.mode == moeModeAuto ? std::min(shape.tokens, kLlTokensOfAuto) : shape.tokens) {}

  std::string text() const {
    return fmt::format("backend: {}\nmode: {}\nSMs: {}\nmemory: {}\ntransport: {}\n", host_ ? "host" : "cuda",
                       modeText(), smsText(), memoryText(), transportText());
  }

 private:
  bool lowLatency() const { return chosenMode() == moeModeLl; }

  Processors processors() const { return scarcer(Processors::spare, domainSize_, machine_.processors); }

  Layout layout() const { return static_cast<Layout>(shape_.layout); }
  ModeSetup setup() const { return setupOf(host_, domains_, processors()); }
  ModeLimit limit() const { return modeLimit(machine_.tunedLimits, setup(), layout()); }

  std::int32_t chosenMode() const {
    if (shape_.mode != moeModeAuto) return shape_.mode;
    return chooseMode(limit(), shape_.tokens, rowBytes_, shape_.ranks, llTokensMax_);
  }

  std::string modeText() const {
    const char* name = lowLatency() ? "LL" : "HT";
    if (shape_.mode != moeModeAuto) return fmt::format("{}, asked for", name);
    if (shape_.tokens > llTokensMax_) {
      return fmt::format("{}, chosen: {} tokens are more than LL has slots for (llTokensMax {})", name, shape_.tokens,
                         llTokensMax_);
    }
    if (shape_.tokens > limit().tokens) {
      return fmt::format("{}, chosen: {} tokens, and LL is taken up to {} ({} {}, built in)", name, shape_.tokens,
                         limit().tokens, nameOf(setup()), nameOf(layout()));
    }
    const int ranks = std::min(shape_.ranks, kRanksOfToken);
    const std::int64_t bytes = bytesOfDispatch(shape_.tokens, shape_.ranks, rowBytes_);
    return fmt::format(
        "{}, chosen: a rank sends at most {} ({} tokens to {} ranks, rows of {} bytes), and LL is taken "
        "up to {}{} ({} {}{})",
        name, mebibytes(static_cast<std::uint64_t>(bytes)), shape_.tokens, ranks, rowBytes_,
        mebibytes(static_cast<std::uint64_t>(limit().bytes)), processorsText(), nameOf(setup()), nameOf(layout()),
        limit().tuned ? " of the tuning file " + machine_.tuningFile : ", built in");
  }

  std::string processorsText() const {
    if (!host_ || domains_ > 1) return "";
    const Processors room = processors();
    return fmt::format(" with {} processors than ranks of a host", room == Processors::spare  ? "more"
                                                                   : room == Processors::full ? "no more"
                                                                                              : "fewer");
  }

  Step dispatchStep() const {
    if (lowLatency()) return Step::llDispatch;
    if (domains_ > 1) return Step::htDispatchRails;
    return expertMajor() ? Step::htDispatchWaves : Step::htDispatch;
  }
  Step combineStep() const {
    if (lowLatency()) return Step::llCombine;
    if (domains_ > 1) return Step::combineRails;
    return expertMajor() ? Step::combineWaves : Step::combine;
  }
  bool expertMajor() const {
    return shape_.layout == moeLayoutExpertMajor || shape_.layout == moeLayoutExpertMajorPadded;
  }

  int blocksOf(Step step) const {
    GpuMachine gpu;
    gpu.multiprocessors = machine_.multiprocessors;
    gpu.linkGBs = machine_.linkGBs;
    const std::int64_t rows = std::int64_t{shape_.tokens} * std::min(shape_.topk, shape_.ranks);
    Workload work{step, shape_.tokens, static_cast<int>(rows), static_cast<std::uint32_t>(rowBytes_), shape_.sms};
    work.bytes = rows * rowBytes_;
    work.lowLatency = lowLatency();
    work.split = domains_ > 1;
    return planLaunch(gpu, work, false).blocks;
  }

  std::string smsText() const {
    if (host_) return "none, because the host backend works with threads (MOECOMM_HOST_THREADS)";
    if (machine_.multiprocessors == 0) return "not known, because no GPU was found";
    return fmt::format("at most {} for dispatch and {} for combine, of {}: {}", blocksOf(dispatchStep()),
                       blocksOf(combineStep()), machine_.multiprocessors,
                       shape_.sms > 0 ? "asked for" : "chosen by the rows of a call");
  }

  std::string memoryText() const {
    moeConfig_t config = MOE_CONFIG_INITIALIZER;
    config.modes = shape_.mode;
    config.tokensMax = std::max(shape_.tokens, 1);
    config.llTokensMax = std::max(llTokensMax_, 1);
    config.rowBytesMax = rowBytes_;
    config.topkMax = shape_.topk;
    config.expertsMax = shape_.experts;
    config.domainSize = domainSize_;
    config.backend = host_ ? moeBackendHost : moeBackendCuda;
    moeMemorySize_t bytes = MOE_MEMORY_SIZE_INITIALIZER;
    if (moeCommGetMemorySize(shape_.ranks, &config, &bytes) != moeSuccess) {
      throw std::runtime_error(moeGetLastError(nullptr));
    }
    return fmt::format(
        "{} of window memory per rank: {} for LL, {} for HT, {} for control, {} of heap. Beside it {}, and "
        "at most {} for each handle",
        mebibytes(bytes.windowBytes), mebibytes(bytes.llBytes), mebibytes(bytes.htBytes), mebibytes(bytes.controlBytes),
        mebibytes(bytes.heapBytes), mebibytes(bytes.privateBytes), mebibytes(bytes.handleBytes));
  }

  std::string transportText() const {
    const char* inside = host_ ? "shared memory" : "loads and stores between GPUs (CUDA IPC)";
    if (shape_.ranks == 1) return "none, because there is one rank";
    if (domainSize_ == 1) return fmt::format("{}, because no domain has two ranks", machine_.betweenHosts);
    if (domains_ == 1) return fmt::format("{}, because all ranks are in one domain", inside);
    return fmt::format("{} inside a domain of {} ranks; between the {} domains {}", inside, domainSize_, domains_,
                       machine_.betweenHosts);
  }

  const ExplainedShape& shape_;
  const ExplainingMachine& machine_;
  bool host_;
  int rowBytes_, domainSize_, domains_, llTokensMax_;
};

}  // namespace

std::string impossible(const ExplainedShape& shape) {
  if (shape.topk > shape.experts) {
    return fmt::format("--topk {} is more than --experts {}", shape.topk, shape.experts);
  }
  if (shape.domainSize > 0 && shape.ranks % shape.domainSize != 0) {
    return fmt::format("--domain-size {} does not divide --ranks {}", shape.domainSize, shape.ranks);
  }
  return "";
}

std::string explain(const ExplainedShape& shape, const ExplainingMachine& machine) {
  return Explainer(shape, machine).text();
}

}  // namespace moe::tools
