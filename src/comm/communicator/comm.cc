#include "comm/communicator/comm.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "base/deadline.h"
#include "bootstrap/group/failure.h"
#include "comm/config/config.h"
#include "comm/recorder/failure_text.h"
#include "device/policy/host/queue_memory.h"

namespace moe {
namespace {

constexpr std::chrono::milliseconds kFailedLeave{1000};
constexpr std::chrono::milliseconds kReadersEnd{1000};
constexpr auto kVerdictEnd = 2 * bootstrap::kVerdict;  // allows for a busy machine

}  // namespace

int domainSizeOf(int nranks, const Config& config) {
  if (config.domainSize == 0) return nranks;
  if (nranks % config.domainSize == 0) return config.domainSize;
  throw Error(moeInvalidArgument,
              fmt::format("config.domainSize is {}, which does not divide the {} ranks", config.domainSize, nranks));
}

CommShape shapeOf(int nranks, int domainSize, const Config& config) {
  CommShape shape;
  shape.nranks = nranks;
  shape.domainSize = domainSize;
  shape.ht = config.ht();
  shape.ll = config.ll();
  shape.tokensMax = config.tokensMax;
  shape.llTokensMax = config.llTokensMax;
  shape.rowBytesMax = config.rowBytesMax;
  shape.sideBytesMax = config.sideBytesMax;
  shape.topkMax = config.topkMax;
  shape.expertsMax = config.expertsMax;
  shape.llSets = config.llSets;
  shape.stagingAreas = config.stagingAreas;
  shape.heapBytes = config.heapBytes;
  if (config.stagingRows > 0) shape.stagingRows = config.stagingRows;
  if (config.stagingRows == 0) shape.stagingRows = std::int64_t{nranks} * config.tokensMax;
  return shape;
}

Comm::~Comm() {
  if (heap_) heap_->close();
  if (watch_) watch_->finish();
  if (backend_) backend_->synchronize();
  leaves_ = true;
  if (remote_) finishPuts();
  if (bootstrap_) {
    const bootstrap::Company company = readers();
    errors_.stopTelling();  // transports run until they are destroyed, and would report this end to the bootstrap
    bootstrap_->leave(company);
  }
  handles_.clear();
}

// Peers that may still read this window. This rank's last LL combine has ended, so every peer has reached its own
// combine and waits only for words that are on their way. Unless it is stopped, it finishes within microseconds. A peer
// that leaves too has ended its steps.
bootstrap::Company Comm::readers() noexcept {
  if (!hasReaders_ || status() != moeSuccess) return {};
  return {room_.view.domainFirst, room_.view.domainSize, std::min(kReadersEnd, timeout())};
}

// Waits until this rank's puts have arrived everywhere, before it takes its window away. After a failure many never
// arrive. Then it waits only until peers learn of the failure, before connections close.
void Comm::finishPuts() noexcept {
  try {
    std::optional<Deadline> failed;
    remote_->finish(Deadline::after(timeout()), [&] {
      if (!failed && status() != moeSuccess) failed = Deadline::after(kFailedLeave);
      return failed && failed->expired();
    });
  } catch (const std::exception& error) {
    log_->write(moeLogWarn, "comm", "while leaving: {}", error.what());
  }
}

bootstrap::Options Comm::bootstrapOptions(int rendezvousRank) const {
  const std::chrono::milliseconds patience =
      orders() != nullptr ? timeout() : std::chrono::milliseconds(config_.timeoutMs);
  return {nranks(), rank(), patience, config_.interfaceName, rendezvousRank, log_.get()};
}

void Comm::startMonitor() {
  std::vector<bootstrap::HostIdentity> processes;
  for (const Peer& peer : peers_) processes.push_back(peer.card.host);
  bootstrap_->startMonitor(
      [this](const bootstrap::Bootstrap::Failure& failure) { fail(failure.result, failure.sentence, false); },
      [this] {
        lookAtSteps();
        lookForLeavers();
      },
      std::chrono::milliseconds(10), processes);
}

void Comm::countSharers() {
  const WindowCard& mine = peers_[static_cast<std::size_t>(rank())].card;
  const auto shares = [&](const Peer& peer) {
    return peer.card.deviceUuid == mine.deviceUuid && mine.host.sameHost(peer.card.host);
  };
  backend_->setSharers(static_cast<int>(std::count_if(peers_.begin(), peers_.end(), shares)));
}

int Comm::transportTo(int rank) const {
  return peers_[static_cast<std::size_t>(rank)].window.transport;
}

void Comm::fail(moeResult_t result, const std::string& sentence, bool announce) noexcept {
  const auto tell = [&] {
    if (announce && bootstrap_) bootstrap_->announceFailure(result, sentence);
  };
  if (!errors_.fail(result, sentence, tell)) return;
  if (orders() != nullptr) std::atomic_ref(orders()->abort).store(1, std::memory_order_release);
  if (watch_) watch_->failed();
  log_->write(moeLogError, "dev", "{}", sentence);  // last, because the caller's function may take its time
}

void Comm::transportFailed(moeResult_t result, const std::string& sentence) noexcept {
  try {
    if (transportReports_.counts(result, sentence)) fail(result, sentence, true);
  } catch (const std::exception&) {
    fail(result, kNoMemory, true);  // memory ran out while the sentence was kept
  }
}

void Comm::hearTransports() noexcept {
  if (const auto report = transportReports_.complete()) fail(report->first, report->second, true);
}

// The record of a step that has failed; NULL: none has.
const Failure* Comm::stepFailure() const noexcept {
  if (room_.view.failure == nullptr) return nullptr;
  for (Failure* failure : {room_.view.failure, localFailure()}) {
    if (std::atomic_ref(failure->ready).load(std::memory_order_acquire) != 0) return failure;
  }
  return nullptr;
}

// A failed step writes a record. The first thread that looks turns it into the communicator's failure. Threads that
// look meanwhile wait for that, because their own step may be the one that failed and must not seem to have succeeded.
void Comm::lookAtSteps() noexcept {
  const Failure* failure = stepFailure();
  if (failure == nullptr) return;
  if (stepFailureTaken_.exchange(true)) return errors_.awaitFailure();
  try {
    Failure known = *failure;
    if (failure == localFailure()) known.peer = rank();  // the only rank of that room
    const FailureText text = describeFailure(known, rank(), timeout().count());
    if (!text.awaited) return fail(text.result, text.sentence, true);
    // Reports the wait to the others before anyone here can see the failure and leave because of it.
    bootstrap_->reportLateWait(*text.awaited, text.result, text.sentence);
    errors_.suspect(text.result, text.sentence, Deadline::after(kVerdictEnd));
    if (watch_) watch_->failed();
  } catch (const std::exception&) {
    fail(moeInternalError, kNoMemory, true);  // while describing the failure
  }
}

// Ends the waits of steps for ranks that are leaving. Steps look at these words after they have waited for a while.
void Comm::lookForLeavers() noexcept {
  for (int rank = 0; rank < nranks(); ++rank) {
    if (!bootstrap_->isLeaving(rank)) continue;
    std::atomic_ref(room_.view.departed[rank]).store(1, std::memory_order_release);
    std::atomic_ref(orders()->left).store(1, std::memory_order_release);
  }
}

moeResult_t Comm::status() noexcept {
  lookAtSteps();
  return errors_.result();
}

void Comm::abort() noexcept {
  if (errors_.result() != moeSuccess) return;  // the ranks may still be finding out who is to blame
  try {
    fail(moeAborted, fmt::format("rank {}: moeCommAbort was called", rank()), true);
  } catch (const std::exception&) {
    fail(moeAborted, "moeCommAbort", true);  // out of memory; this sentence is short enough to need none
  }
}

std::chrono::milliseconds Comm::timeout() const noexcept {
  return std::chrono::floor<std::chrono::milliseconds>(timeoutOf(*orders()));
}

void requireTimeout(std::int32_t timeoutMs) {
  if (timeoutMs >= 1 && timeoutMs <= Limits::kTimeoutMs) return;
  throw Error(moeInvalidArgument, fmt::format("timeoutMs is {}, must be 1..{}", timeoutMs, Limits::kTimeoutMs));
}

void Comm::setTimeout(std::int32_t timeoutMs) {
  requireTimeout(timeoutMs);
  std::atomic_ref(orders()->timeoutNs)
      .store(std::uint64_t{1000000} * static_cast<std::uint32_t>(timeoutMs), std::memory_order_release);
  log_->write(moeLogInfo, "comm", "the timeout of waits for other ranks is now {} ms", timeoutMs);
}

std::int64_t Comm::windowOffset(const void* memory, std::uint64_t bytes, const char* name) const {
  const std::int64_t at = heap_->offsetOf(memory);
  if (at < 0) return -1;
  const std::uint64_t room = heap_->roomAt(at);
  if (bytes > room) {
    throw Error(
        moeInvalidArgument,
        fmt::format("{} needs {} bytes, but the block of moeMemAlloc has only {} from there on", name, bytes, room));
  }
  return static_cast<std::int64_t>(room_.view.at.heap) + at;
}

std::int64_t Comm::windowRoom(const void* memory, std::uint64_t rowBytes) const {
  const std::int64_t at = heap_->offsetOf(memory);
  if (at < 0) return kAnyRows;
  return static_cast<std::int64_t>(heap_->roomAt(at) / rowBytes);
}

void Comm::remove(const void* handle) {
  std::erase_if(handles_, [&](const Owned& owned) { return owned.handle.get() == handle; });
}

}  // namespace moe
