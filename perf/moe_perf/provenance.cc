#include "perf/moe_perf/provenance.h"

#include <fmt/format.h>

#include <array>
#include <ctime>

#include "base/host_name.h"
#include "moecomm.h"
#include "tools/program_text.h"
#include "topology/sysfs.h"
#include "topology/topology.h"

namespace moe::perf {
namespace {

std::string timeNow() {
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  ::gmtime_r(&now, &parts);
  std::array<char, 32> text{};
  std::strftime(text.data(), text.size(), "%Y-%m-%dT%H:%M:%SZ", &parts);
  return text.data();
}

}  // namespace

Provenance findProvenance() {
  return {fmt::format("{}.{}.{}", MOE_VERSION_MAJOR, MOE_VERSION_MINOR, MOE_VERSION_PATCH),
          tools::buildCommit(),
          thisHostName(),
          timeNow(),
          topology::processorModel(),
          topology::readLine("/sys/module/nvidia/version")};
}

}  // namespace moe::perf
