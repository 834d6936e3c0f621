// Logs what was chosen for a handle when it is made.
#include <fmt/format.h>

#include <array>

#include "comm/handle/handle.h"

namespace moe {
namespace {

const char* nameOfLayout(Layout layout) {
  constexpr std::array<const char*, 4> kNames = {"FLAT", "EXPERT_MAJOR", "EXPERT_MAJOR_PADDED", "RANK_MAJOR"};
  return kNames[static_cast<std::size_t>(layout)];
}

}  // namespace

void Handle::tell(const moeHandleConfig_t& config, std::int64_t bytes) const {
  const Log& log = comm_.log();
  if (!log.enabled(moeLogInfo)) return;
  const char* why = config.mode != moeModeAuto         ? "asked for"
                    : room_.shape.ht && room_.shape.ll ? "chosen"
                                                       : "the communicator's only one";
  std::string where;
  if (comm_.backend().kind() == moeBackendCuda) {
    const auto rowBytes = static_cast<std::uint32_t>(room_.shape.rowBytesMax);
    const auto blocks = [&](Step step) {
      const std::int64_t rows = std::int64_t{shape_.tokensMax} * view_.destinationsMax;
      return comm_.backend()
          .shapeFor({step, shape_.tokensMax, static_cast<int>(rows), rowBytes, comm_.config().sms, false,
                     rows * rowBytes, lowLatency()})
          .blocks;
    };
    where =
        fmt::format("; the largest dispatch uses {} multiprocessors, the largest combine {}",
                    blocks(dispatchStep(view_, false)), blocks(combineStep(view_, comm_.backend().landingCombines())));
  }
  log.write(moeLogInfo, "dev", "handle {}: mode {} ({}), layout {}, {} experts{}, {} per token, at most {} tokens{}",
            number(), lowLatency() ? "LL" : "HT", why, nameOfLayout(shape_.layout), shape_.named,
            localOnly_ ? ", this rank's only" : "", shape_.topk, shape_.tokensMax, where);
  log.write(moeLogDebug, "dev", "handle {}: {} bytes of private memory, {} for counts{}", number(), bytes,
            toldBytes(shape_), lowLatency() ? fmt::format(", LL buffers {}", view_.llSet) : "");
}

}  // namespace moe
