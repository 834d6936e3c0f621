// The Group of ranks that are processes. It has its own bootstrap beside the library's, so that samples and barriers do
// not use what is being measured.
#include <chrono>
#include <cstdint>
#include <cstring>
#include <utility>

#include "bootstrap/group/bootstrap.h"
#include "bootstrap/group/unique_id.h"
#include "comm/config/config.h"
#include "perf/moe_perf/group.h"

namespace moe::perf {
namespace {

constexpr std::chrono::seconds kWaitMax{120};

class ProcessGroup : public Group {
 public:
  explicit ProcessGroup(std::unique_ptr<bootstrap::Bootstrap> bootstrap)
      : Group(bootstrap->rank(), bootstrap->nranks()), bootstrap_(std::move(bootstrap)) {}

  std::vector<std::vector<std::byte>> gatherBytes(std::vector<std::byte> mine) override {
    const auto* first = reinterpret_cast<const std::uint8_t*>(mine.data());
    std::vector<std::vector<std::byte>> all;
    for (const auto& blob : bootstrap_->allGather({first, mine.size()})) {
      const auto* bytes = reinterpret_cast<const std::byte*>(blob.data());
      all.emplace_back(bytes, bytes + blob.size());
    }
    return all;
  }

 private:
  std::unique_ptr<bootstrap::Bootstrap> bootstrap_;
};

}  // namespace

LaunchPlace placeFromEnvironment() {
  const LaunchEnvironment launch = launchFromEnvironment();
  return {launch.rank, launch.nranks, launch.localRank < 0 ? launch.rank : launch.localRank};
}

std::unique_ptr<Group> makeProcessGroup() {
  const LaunchEnvironment launch = launchFromEnvironment();
  const auto port = static_cast<std::uint16_t>(launch.rootPort + 1);
  const moeUniqueId_t id = bootstrap::uniqueIdFor(launch.rootHost, port, launch.secret, kWaitMax);
  if (launch.rank == 0) bootstrap::serveUniqueId(id, kWaitMax);
  bootstrap::Options options;
  options.nranks = launch.nranks;
  options.rank = launch.rank;
  options.timeout = kWaitMax;
  return std::make_unique<ProcessGroup>(bootstrap::Bootstrap::join(id, options));
}

}  // namespace moe::perf
