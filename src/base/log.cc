#include "base/log.h"

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <climits>
#include <csignal>
#include <string_view>

#include "base/error.h"
#include "base/fd.h"
#include "base/host_name.h"
#include "base/signal_held.h"

namespace moe {
namespace {

// Whether standard error was open when the library was loaded. If not, a socket or a window may get its number before
// the first log is opened, because rank 0 serves the meeting first.
const bool standardErrorWasOpen = ::fcntl(STDERR_FILENO, F_GETFD) >= 0;

constexpr int kPatienceMs = 250;  // for a pipe whose reader gets no processor

std::string expandName(const std::string& pattern) {
  std::string name;
  for (std::size_t i = 0; i < pattern.size(); ++i) {
    const char what = pattern[i] == '%' && i + 1 < pattern.size() ? pattern[i + 1] : '\0';
    if (what == 'h') {
      name += thisHostName();
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

bool takesMore(int fd, int waitMs) {
  pollfd entry{fd, POLLOUT, 0};
  return ::poll(&entry, 1, waitMs) > 0;
}

// Writes in pieces so small that a pipe with room takes each one whole. Returns false if the rest is lost.
bool writeText(int fd, std::string_view text, int waitMs) {
  SignalHeld noReader(SIGPIPE), noRoom(SIGXFSZ);
  while (!text.empty()) {
    if (!takesMore(fd, waitMs)) return false;
    const ssize_t written = ::write(fd, text.data(), std::min<std::size_t>(text.size(), PIPE_BUF));
    if (written < 0 && errno == EINTR) continue;
    if (written < 0 && errno == EPIPE) noReader.forget();
    if (written < 0 && errno == EFBIG) noRoom.forget();
    if (written <= 0) return false;
    text.remove_prefix(static_cast<std::size_t>(written));
  }
  return true;
}

}  // namespace

struct Log::Output {
  Fd file;  // empty: standard error
  std::atomic<bool> stuck = false;

  // One write per line, so that lines of several ranks do not mix. If it has waited for a reader in vain, it does not
  // wait again until a line has gone through.
  void write(std::string_view line) {
    stuck = !writeText(file ? file.get() : STDERR_FILENO, line, stuck ? 0 : kPatienceMs);
  }
};

Log::Log(const Options& options, int rank, int nranks)
    : level_(options.level),
      sink_(options.sink),
      user_(options.user),
      rank_(fmt::format("[rank {}/{} {}:{}]", rank, nranks, thisHostName(), ::getpid())) {
  if (sink_ != nullptr) return;
  if (options.file.empty() && (!standardErrorWasOpen || ::fcntl(STDERR_FILENO, F_GETFD) < 0)) return;
  output_ = std::make_shared<Output>();
  if (options.file.empty()) return;
  const std::string name = expandName(options.file);
  output_->file = Fd(::open(name.c_str(), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0666));
  if (!output_->file) throw systemError("cannot open MOECOMM_LOG_FILE " + name);
}

void Log::emit(std::int32_t level, const char* subsys, const std::string& sentence) const {
  std::string line = fmt::format("moecomm {} {} {}: {}", levelName(level), rank_, subsys, sentence);
  if (sink_ != nullptr) return sink_(user_, level, line.c_str());
  line += '\n';
  if (output_) output_->write(line);
}

}  // namespace moe
