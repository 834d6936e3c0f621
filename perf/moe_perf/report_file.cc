#include "perf/moe_perf/report_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <stdexcept>
#include <string_view>

namespace moe::perf {

namespace {

int openFile(const std::string& path) {
  if (path == kStandardOutput) return ::fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, 0);
  return ::open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0666);
}

}  // namespace

ReportFile::ReportFile(const std::string& option, const std::string& path)
    : name_(option + ": cannot write " + path), replaces_(path != kStandardOutput), file_(openFile(path)) {
  if (!file_) throw std::runtime_error(fmt::format("{}: {}", name_, std::strerror(errno)));
}

void ReportFile::write(const std::string& text) {
  if (replaces_) (void)!::ftruncate(file_.get(), 0);  // fails for files without a length, such as pipes
  for (std::string_view rest = text; !rest.empty();) {
    const ssize_t taken = ::write(file_.get(), rest.data(), rest.size());
    if (taken < 0 && errno == EINTR) continue;
    if (taken < 0) throw std::runtime_error(fmt::format("{}: {}", name_, std::strerror(errno)));
    rest.remove_prefix(static_cast<std::size_t>(taken));
  }
}

}  // namespace moe::perf
