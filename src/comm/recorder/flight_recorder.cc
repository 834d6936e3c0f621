#include "comm/recorder/flight_recorder.h"

#include <fcntl.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstring>

#include "base/error.h"
#include "base/fd.h"
#include "base/signal_held.h"

namespace moe {

// A thread's turn with the snapshot, if it comes in time.
class FlightRecorder::Turn {
 public:
  Turn(FlightRecorder& recorder, Deadline end) : recorder_(recorder) {
    std::unique_lock lock(recorder_.mutex_);
    has_ = recorder_.idle_.wait_until(lock, end.at(), [&] { return !recorder_.busy_; });
    if (has_) recorder_.busy_ = true;
  }
  ~Turn() {
    if (!has_) return;
    const std::lock_guard lock(recorder_.mutex_);
    recorder_.busy_ = false;
    recorder_.idle_.notify_one();
  }
  Turn(const Turn&) = delete;
  Turn& operator=(const Turn&) = delete;

  bool has() const { return has_; }

 private:
  FlightRecorder& recorder_;
  bool has_ = false;
};

namespace {

Error notCopied() {
  return Error(moeTimeout, "the steps that the recorder holds could not be copied in time");
}

}  // namespace

FlightRecorder::FlightRecorder(Backend& backend, const Allocator& allocator, const Memory& state, bool enabled)
    : state_(reinterpret_cast<const std::uint64_t*>(state.get())), onHost_(backend.kind() == moeBackendHost) {
  if (!enabled) return;
  memory_ = backend.allocatePrivate(sizeof(StepRecorder), allocator);
  snapshot_ = backend.makeSnapshot(reinterpret_cast<const std::uint64_t*>(memory_.get()), sizeof(StepRecorder));
  if (!onHost_) return;
  ring()->notesWaits = 1;
  ring()->inTicks = snapshot_->inTicks() ? 1 : 0;
}

std::string FlightRecorder::text(RecorderOwner owner, Deadline end) {
  if (!snapshot_) return recorderText(owner, 0, {});
  const Turn turn(*this, end);
  if (!turn.has()) throw notCopied();
  const std::uint8_t* bytes =
      snapshot_->take(reinterpret_cast<const std::uint64_t*>(memory_.get()), sizeof(StepRecorder), end);
  if (bytes == nullptr) throw notCopied();
  const auto copy = std::make_unique<StepRecorder>();
  std::memcpy(copy.get(), bytes, sizeof *copy);
  owner.totals = totals(end);
  owner.clock = snapshot_->clock(end);
  if (copy->inTicks != 0) {
    const TickScale scale = snapshot_->scale();
    tellNanoseconds(copy.get(), scale);
    tellNanoseconds(&*owner.totals, scale);
    owner.clock.errorNs += scale.errorNs;
  }
  return recorderText(owner, copy->steps, recordsOf(*copy));
}

// The host's steps store the words of CommState without atomics, so another thread may not read them there. On the host
// every operation is a call.
Totals FlightRecorder::totals(Deadline end) {
  Totals totals = calls_.now();
  if (onHost_) return totals;
  totals.stepNs.reset();
  totals.waitNs.reset();
  const std::uint8_t* bytes = snapshot_->take(state_, sizeof(CommState), end);
  if (bytes == nullptr) throw notCopied();
  CommState state;
  std::memcpy(&state, bytes, sizeof state);
  countFrom(state, &totals);
  return totals;
}

void writeWholeFile(const std::string& path, const std::string& text) {
  const std::string part = path + ".part";
  const auto cannot = [&] { return Error(moeSystemError, "cannot write " + path + ": " + errorText(errno)); };
  const auto giveUp = [&] {  // the error, taken before the clean-up changes errno
    Error error = cannot();
    ::unlink(part.c_str());
    return error;
  };
  ::unlink(part.c_str());  // left by a process that ended meanwhile
  const Fd file(::open(part.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
  if (!file) throw cannot();
  SignalHeld tooLarge(SIGXFSZ);
  for (std::size_t at = 0; at < text.size();) {
    const ssize_t wrote = ::write(file.get(), text.data() + at, text.size() - at);
    if (wrote < 0 && errno == EFBIG) tooLarge.forget();
    if (wrote < 0 && errno != EINTR) throw giveUp();
    if (wrote > 0) at += static_cast<std::size_t>(wrote);
  }
  if (std::rename(part.c_str(), path.c_str()) != 0) throw giveUp();
}

}  // namespace moe
