#include "provenance.h"

#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <ctime>

#include "moecomm.h"
#include "tools/command_line.h"
#include "topology/sysfs.h"

namespace moe::perf {
namespace {

std::string hostName() {
  std::array<char, 256> name{};
  ::gethostname(name.data(), name.size() - 1);
  return name.data();
}

std::string timeNow() {
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  ::gmtime_r(&now, &parts);
  std::array<char, 32> text{};
  std::strftime(text.data(), text.size(), "%Y-%m-%dT%H:%M:%SZ", &parts);
  return text.data();
}

// "model name : Intel(R) Xeon(R) ..." on x86; other machines do not tell.
std::string cpuModel() {
  const std::string value = topology::valueIn("/proc/cpuinfo", "model name");
  const std::size_t text = value.find_first_not_of(": \t");
  return text == std::string::npos ? "" : value.substr(text);
}

}  // namespace

Provenance findProvenance() {
  return {fmt::format("{}.{}.{}", MOE_VERSION_MAJOR, MOE_VERSION_MINOR, MOE_VERSION_PATCH),
          tools::buildCommit(),
          hostName(),
          timeNow(),
          cpuModel(),
          topology::readLine("/sys/module/nvidia/version")};
}

}  // namespace moe::perf
