#include "perf/moe_perf/replaced_file.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <stdexcept>

#include "perf/moe_perf/report_file.h"

namespace moe::perf {
namespace {

// A file beside `path`, which is removed unless it has taken the place of that.
class Successor {
 public:
  Successor(const std::string& option, const std::string& path)
      : path_(path), own_(fmt::format("{}.{}", path, ::getpid())), file_(option, own_) {}
  ~Successor() { ::unlink(own_.c_str()); }
  Successor(const Successor&) = delete;
  Successor& operator=(const Successor&) = delete;

  void write(const std::string& text) { file_.write(text); }
  bool takePlace() { return std::rename(own_.c_str(), path_.c_str()) == 0; }

 private:
  std::string path_, own_;
  ReportFile file_;
};

}  // namespace

void requireReplaceable(const std::string& option, const std::string& path) {
  struct stat found {};
  if (::stat(path.c_str(), &found) == 0 && !S_ISREG(found.st_mode)) {
    throw std::runtime_error(fmt::format("{}: cannot write {}: it is not a regular file", option, path));
  }
  const Successor tried(option, path);
}

void replaceFile(const std::string& option, const std::string& path, const std::string& text) {
  requireReplaceable(option, path);
  Successor file(option, path);
  file.write(text);
  if (file.takePlace()) return;
  throw std::runtime_error(fmt::format("{}: cannot write {}: {}", option, path, std::strerror(errno)));
}

}  // namespace moe::perf
