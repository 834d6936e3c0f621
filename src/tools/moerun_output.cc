#include "tools/moerun_output.h"

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <utility>

namespace moe::tools {
namespace {

// A longer line is written in pieces, so that a rank without line ends cannot fill the memory.
constexpr std::size_t kLineBytesMax = std::size_t{1} << 20;

// The largest size of a pipe, unless the system was configured otherwise.
constexpr std::size_t kPipeBytesMax = std::size_t{1} << 20;

}  // namespace

OutputStream::OutputStream(Fd source, Sink* sink, std::string tag)
    : source_(std::move(source)), sink_(sink), tag_(std::move(tag)) {
  const int flags = ::fcntl(source_.get(), F_GETFL);
  ::fcntl(source_.get(), F_SETFL, flags | O_NONBLOCK);
}

void OutputStream::drain() {
  std::array<char, 65536> buffer;
  while (open()) {
    const ssize_t count = ::read(source_.get(), buffer.data(), buffer.size());
    if (count > 0 && !overdrawn(static_cast<std::size_t>(count))) {
      pending_.append(buffer.data(), static_cast<std::size_t>(count));
      writeLines();
      // One buffer per turn keeps a talkative rank from starving the others.
      if (static_cast<std::size_t>(count) == buffer.size()) return;
    } else if (count < 0 && errno == EINTR) {
      continue;
    } else if (count < 0 && errno == EAGAIN) {
      return;
    } else {
      finish();
    }
  }
}

void OutputStream::takeRest() {
  rest_ = kPipeBytesMax;
}

// A process that a rank left behind, out of moerun's reach, may write for ever.
bool OutputStream::overdrawn(std::size_t bytes) {
  if (!rest_) return false;
  if (*rest_ < bytes) return true;
  *rest_ -= bytes;
  return false;
}

void OutputStream::finish() {
  if (!open()) return;
  if (!pending_.empty()) writeLine(pending_.data(), pending_.size());
  pending_.clear();
  source_.reset();
}

void OutputStream::writeLines() {
  std::size_t begin = 0;
  for (std::size_t end = pending_.find('\n'); end != std::string::npos; end = pending_.find('\n', begin)) {
    writeLine(pending_.data() + begin, end - begin);
    begin = end + 1;
  }
  pending_.erase(0, begin);
  if (pending_.size() >= kLineBytesMax) {
    writeLine(pending_.data(), pending_.size());
    pending_.clear();
  }
}

void OutputStream::writeLine(const char* text, std::size_t length) {
  sink_->write(tag_ + std::string(text, length) + "\n");
}

}  // namespace moe::tools
