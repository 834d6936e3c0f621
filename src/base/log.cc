#include "base/log.h"

#include <unistd.h>

#include <array>

#include "base/error.h"

namespace moe {
namespace {

std::string expandName(const std::string& pattern) {
  std::string name;
  for (std::size_t i = 0; i < pattern.size(); ++i) {
    const char what = pattern[i] == '%' && i + 1 < pattern.size() ? pattern[i + 1] : '\0';
    if (what == 'h') {
      std::array<char, 256> host{};
      ::gethostname(host.data(), host.size() - 1);
      name += host.data();
      ++i;
    } else if (what == 'p') {
      name += std::to_string(::getpid());
      ++i;
    } else {
      name += pattern[i];
    }
  }
  return name;
}

const char* levelName(std::int32_t level) {
  constexpr std::array<const char*, 6> kNames = {"none", "error", "warn", "info", "debug", "trace"};
  return level >= 0 && level < static_cast<std::int32_t>(kNames.size()) ? kNames[static_cast<std::size_t>(level)] : "?";
}

}  // namespace

Log::Log(const Options& options, int rank, int nranks)
    : level_(options.level),
      sink_(options.sink),
      user_(options.user),
      rank_(fmt::format("[rank {}/{}]", rank, nranks)) {
  if (sink_ != nullptr || options.file.empty()) return;
  const std::string name = expandName(options.file);
  file_.reset(std::fopen(name.c_str(), "ae"), [](std::FILE* file) {
    if (file != nullptr) std::fclose(file);
  });
  if (!file_) throw systemError("cannot open MOECOMM_LOG_FILE " + name);
}

void Log::emit(std::int32_t level, const char* subsys, const std::string& sentence) const {
  const std::string line = fmt::format("moecomm {} {} {}: {}", levelName(level), rank_, subsys, sentence);
  if (sink_ != nullptr) {
    sink_(user_, level, line.c_str());
    return;
  }
  std::FILE* out = file_ ? file_.get() : stderr;
  fmt::print(out, "{}\n", line);  // one write per line, so that lines of several ranks do not mix
  std::fflush(out);
}

}  // namespace moe
