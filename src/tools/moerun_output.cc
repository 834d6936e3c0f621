#include "tools/moerun_output.h"

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <utility>

namespace moe::tools {
namespace {

// A longer line is written in pieces, so that a rank without line ends cannot fill the memory.
constexpr std::size_t kLineBytesMax = std::size_t{1} << 20;

bool writeAll(int fd, const std::string& text) {
  std::size_t done = 0;
  while (done < text.size()) {
    const ssize_t count = ::write(fd, text.data() + done, text.size() - done);
    if (count >= 0) {
      done += static_cast<std::size_t>(count);
    } else if (errno == EAGAIN) {
      // Whoever gave us the descriptor made it non-blocking.
      pollfd wait{fd, POLLOUT, 0};
      ::poll(&wait, 1, 1000);
    } else if (errno != EINTR) {
      return false;
    }
  }
  return true;
}

}  // namespace

OutputStream::OutputStream(Fd source, int sink, std::string tag)
    : source_(std::move(source)), sink_(sink), tag_(std::move(tag)) {
  const int flags = ::fcntl(source_.get(), F_GETFL);
  ::fcntl(source_.get(), F_SETFL, flags | O_NONBLOCK);
}

void OutputStream::drain() {
  std::array<char, 65536> buffer;
  while (open()) {
    const ssize_t count = ::read(source_.get(), buffer.data(), buffer.size());
    if (count > 0) {
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
  // Once nobody reads the output any more, the ranks' work still goes on.
  if (!sinkBroken_) sinkBroken_ = !writeAll(sink_, tag_ + std::string(text, length) + "\n");
}

}  // namespace moe::tools
