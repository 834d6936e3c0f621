#include "tools/moerun_output.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <condition_variable>
#include <cstdint>
#include <cstring>
#include <mutex>
#include <thread>
#include <utility>

#include "base/error.h"
#include "base/fd.h"

namespace moe::tools {
namespace {

// How much output may wait for the reader before the ranks are held back.
constexpr std::size_t kQueuedMax = std::size_t{1} << 20;
// How much is written at once. Small pieces keep the count of lost bytes accurate, and show early that there is room.
constexpr std::size_t kPieceMax = std::size_t{1} << 16;

// Returns 0, or the error that ends all writing. Waits as long as the reader takes.
int writePiece(int fd, std::string_view* text) {
  const ssize_t count = ::write(fd, text->data(), std::min(text->size(), kPieceMax));
  if (count >= 0) {
    text->remove_prefix(static_cast<std::size_t>(count));
    return 0;
  }
  if (errno == EAGAIN) {  // the process that gave us the descriptor made it non-blocking
    pollfd wait{fd, POLLOUT, 0};
    ::poll(&wait, 1, -1);
    return 0;
  }
  return errno == EINTR ? 0 : errno;
}

// A longer line is written in pieces, so that a rank without line ends cannot fill the memory.
constexpr std::size_t kLineBytesMax = std::size_t{1} << 20;

// The largest size of a pipe, unless the system was configured otherwise.
constexpr std::size_t kPipeBytesMax = std::size_t{1} << 20;

}  // namespace

struct Sink::State {
  int fd;
  std::string name;
  Fd changed;
  mutable std::mutex mutex;
  std::condition_variable work;
  std::string taken;       // text that waits for the thread
  std::size_t queued = 0;  // bytes of `taken` and of what the thread is writing
  int error = 0;
  bool started = false;
  bool ended = false;

  void tell() const { ::eventfd_write(changed.get(), 1); }

  // The work of the thread.
  void writeAll() {
    std::unique_lock lock(mutex);
    while (true) {
      work.wait(lock, [this] { return ended || !taken.empty(); });
      if (ended) return;
      const std::string text = std::exchange(taken, {});
      std::string_view left = text;
      while (!left.empty() && error == 0 && !ended) {
        const std::size_t before = left.size();
        lock.unlock();
        const int failed = writePiece(fd, &left);
        lock.lock();
        queued -= before - left.size();
        error = failed;
        tell();
      }
    }
  }
};

Sink::Sink(int fd, std::string name) : state_(std::make_shared<State>()) {
  state_->fd = fd;
  state_->name = std::move(name);
  state_->changed = Fd(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!state_->changed) throw systemError("cannot make an event descriptor");
}

Sink::~Sink() {
  const std::lock_guard lock(state_->mutex);
  state_->ended = true;
  state_->work.notify_one();
}

void Sink::write(std::string_view text) {
  const std::lock_guard lock(state_->mutex);
  state_->queued += text.size();
  if (state_->error != 0) return;
  state_->taken += text;
  state_->work.notify_one();
  if (state_->started) return;
  // The thread is detached: it may be inside a write that never returns, and the process must end all the same.
  std::thread([state = state_] { state->writeAll(); }).detach();
  state_->started = true;
}

bool Sink::full() const {
  const std::lock_guard lock(state_->mutex);
  return state_->error == 0 && state_->queued >= kQueuedMax;
}

bool Sink::idle() const {
  const std::lock_guard lock(state_->mutex);
  return state_->error != 0 || state_->queued == 0;
}

int Sink::changed() const {
  return state_->changed.get();
}

void Sink::acknowledge() {
  eventfd_t count = 0;
  ::eventfd_read(state_->changed.get(), &count);
}

std::string Sink::loss() const {
  const std::lock_guard lock(state_->mutex);
  if (state_->error != 0) {
    return fmt::format("{}: {}; its output is lost", state_->name, ::strerror(state_->error));
  }
  if (state_->queued == 0) return "";
  return fmt::format("{}: nobody reads it; {} bytes are lost", state_->name, state_->queued);
}

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
