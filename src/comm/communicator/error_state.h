// The first failure of a communicator, kept until it is destroyed or recovers. The first thread that notices writes it:
// a caller, the liveness monitor, a transport, or a step (through its failure record). Reports of transports may come
// too early.
#pragma once

#include <atomic>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <optional>
#include <string>
#include <utility>

#include "base/deadline.h"
#include "base/error.h"
#include "moecomm.h"

namespace moe {

class ErrorState {
 public:
  // Returns true for the first failure, which is kept. `tell()` informs the peers, and must not call back. It runs
  // before anyone here can see the failure and leave because of it. fail() ends what suspect() has started, whose
  // result stays.
  template <class Tell>
  bool fail(moeResult_t result, const std::string& sentence, Tell tell) noexcept {
    const std::lock_guard lock(mutex_);
    if (result_ != moeSuccess && !asking_) return false;
    try {
      latest_ = sentence;
      if (tells_) tell();
    } catch (const std::exception&) {  // the failure counts, with or without its sentence
      if (latest_ != sentence) latest_ = kNoMemory;
    }
    if (result_ == moeSuccess) result_ = result;
    asking_ = false;
    failed_.notify_all();
    answered_.notify_all();
    return true;
  }

  // The communicator has failed, but the culprit is not known yet; fail() will name it. If it does not by `end`,
  // `sentence` is used. An earlier failure stays.
  void suspect(moeResult_t result, const std::string& sentence, Deadline end) {
    const std::lock_guard lock(mutex_);
    if (result_ != moeSuccess) return;
    latest_ = sentence;
    asking_ = true;
    answerEnd_ = end;
    result_ = result;
    failed_.notify_all();
  }

  // For a caller that knows that another thread is about to call fail() or suspect(). Returns when that has happened.
  void awaitFailure() noexcept {
    std::unique_lock lock(mutex_);
    failed_.wait(lock, [&] { return result_ != moeSuccess; });
  }

  // From now on no failure is announced to peers, because they know that this rank leaves. Waits until a call of tell()
  // in progress ends.
  void stopTelling() noexcept {
    const std::lock_guard lock(mutex_);
    tells_ = false;
  }

  // The communicator has recovered: there is no failure any more.
  void forget() {
    const std::lock_guard lock(mutex_);
    latest_.clear();
    asking_ = false;
    result_ = moeSuccess;
  }
  // The communicator has failed, and could not recover either. The sentence of that replaces the first one.
  void replace(moeResult_t result, const std::string& sentence) {
    const std::lock_guard lock(mutex_);
    latest_ = sentence;
    asking_ = false;
    result_ = result;
  }

  // The same for a recovery that has not begun: the failure stays.
  void explain(const std::string& sentence) {
    const std::lock_guard lock(mutex_);
    latest_ = sentence;
  }

  // Keeps the sentence of a refused argument; the communicator stays usable.
  void refuse(const std::string& sentence) {
    const std::lock_guard lock(mutex_);
    if (result_ == moeSuccess) latest_ = sentence;
  }

  moeResult_t result() const noexcept { return result_; }

  // A text that stays valid until the next call of text(). Waits until the culprit of a failure is known.
  const char* text() {
    std::unique_lock lock(mutex_);
    answered_.wait_until(lock, answerEnd_.at(), [&] { return !asking_; });
    shown_ = latest_;
    return shown_.c_str();
  }
  // Returns when the culprit of a failure is known, or will not be.
  void awaitCulprit() {
    std::unique_lock lock(mutex_);
    answered_.wait_until(lock, answerEnd_.at(), [&] { return !asking_; });
  }
  std::string sentence() {
    const std::lock_guard lock(mutex_);
    return latest_;
  }

 private:
  std::mutex mutex_;
  std::condition_variable failed_, answered_;
  bool tells_ = true;
  bool asking_ = false;
  Deadline answerEnd_ = Deadline::after(std::chrono::milliseconds(0));
  std::atomic<moeResult_t> result_ = moeSuccess;
  std::string latest_, shown_;
};

// Holds back what transports report while a group is still coming together. When one rank ends, others give up and
// close their connections too, and sockets may show that before the group says which rank ended. So reports wait until
// the group is complete. By then the group has named the cause, or there is no other.
class KeptBack {
 public:
  using Report = std::pair<moeResult_t, std::string>;

  // Any thread. Returns false if the report is held back, or dropped because another one already is.
  bool counts(moeResult_t result, const std::string& sentence) {
    const std::lock_guard lock(mutex_);
    if (!complete_ && !first_) first_ = Report(result, sentence);
    return complete_;
  }

  // A group comes together again, so reports are held back again. No transport lives.
  void begin() {
    const std::lock_guard lock(mutex_);
    complete_ = false;
    first_.reset();
  }

  // From now on reports count. Returns the one that was held back.
  std::optional<Report> complete() {
    const std::lock_guard lock(mutex_);
    complete_ = true;
    return std::exchange(first_, std::nullopt);
  }

 private:
  std::mutex mutex_;
  bool complete_ = false;
  std::optional<Report> first_;
};

}  // namespace moe
