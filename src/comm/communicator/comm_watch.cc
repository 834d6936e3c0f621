// Shows the latest steps of a communicator: in dumps, and to programs that watch it from outside.
#include <fmt/format.h>

#include "comm/communicator/comm.h"

namespace moe {
namespace {

constexpr std::chrono::milliseconds kCopyEnd{2000};

}  // namespace

std::string Comm::fileName(const std::string& folder, const char* ending) const {
  return fmt::format("{}/moecomm-{}-rank{}.{}", folder, job_, rank(), ending);
}

std::string Comm::recorded(const char* reason) {
  RecorderOwner owner;
  owner.job = job_;
  owner.host = peers_[static_cast<std::size_t>(rank())].card.host.hostName.data();
  owner.backend = backend_->kind() == moeBackendCuda ? "cuda" : "host";
  owner.rank = rank();
  owner.nranks = nranks();
  owner.domainSize = room_.view.domainSize;
  owner.processId = process_;
  owner.reason = reason;
  owner.result = errors_.result();
  if (owner.result != moeSuccess) owner.sentence = errors_.sentence();
  owner.toRank0 = toRank0_;
  return recorder_->text(owner, Deadline::after(kCopyEnd));
}

void Comm::dump(const char* path) {
  if (path == nullptr && config_.dumpFolder.empty()) {
    throw Error(moeInvalidUsage,
                "moeCommDump: path is NULL, and config.dumpFolder (MOECOMM_DUMP_FOLDER) names no folder");
  }
  writeWholeFile(path != nullptr ? path : fileName(config_.dumpFolder, "json"), recorded("call"));
}

void Comm::startWatch() {
  if (job_.empty()) {  // a hash of the group's key, which does not reveal the key
    const bootstrap::Key hash = bootstrap_->keyFor("recorder", 0);
    job_ = fmt::format("{:02x}", fmt::join(hash.begin(), hash.begin() + 8, ""));
  }
  if (config_.dumpFolder.empty() && config_.watchFolder.empty()) return;
  WatchPlan plan;
  plan.rank = rank();
  plan.key = bootstrap_->keyFor("watch", rank());
  if (!config_.dumpFolder.empty()) plan.dumpPath = fileName(config_.dumpFolder, "json");
  if (!config_.watchFolder.empty()) {
    requireOwnFolder("config.watchFolder (MOECOMM_WATCH_FOLDER)", config_.watchFolder);
    plan.socketPath = fileName(config_.watchFolder, "sock");
  }
  const auto forFailure = [this] {
    errors_.awaitCulprit();
    return recorded("failure");
  };
  watch_ = std::make_unique<Watch>(plan, Watch::Texts{[this] { return recorded("watch"); }, forFailure}, *log_);
}

}  // namespace moe
