#include "comm/recorder/watch.h"

#include <fmt/format.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "base/quiet_thread.h"
#include "base/unix_socket.h"
#include "comm/recorder/flight_recorder.h"

namespace moe {
namespace {

using bootstrap::FrameType;
using std::chrono::milliseconds;

constexpr std::size_t kGuestsMax = 4;     // guests whose answers are on their way
constexpr milliseconds kAnswerEnd{5000};  // time for a guest to take its answer
constexpr milliseconds kDumpEnd{2000};    // time for a dump before its communicator goes on
constexpr bootstrap::Lobby::Limits kLimits{8, milliseconds(2000), milliseconds(100)};

// The mode is set before the socket has a name.
Fd listenAt(const std::string& path) {
  const std::optional<UnixName> name = UnixName::ofFile(path);
  if (!name) {
    throw Error(moeInvalidArgument, fmt::format("the socket's path {} has {} bytes, at most {} fit: choose a shorter "
                                                "watchFolder (MOECOMM_WATCH_FOLDER)",
                                                path, path.size(), UnixName::kPathMax));
  }
  Fd fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!fd) throw systemError("socket");
  ::unlink(path.c_str());
  const bool bound = ::fchmod(fd.get(), 0600) == 0 && ::bind(fd.get(), name->get(), name->bytes()) == 0 &&
                     ::chmod(path.c_str(), 0600) == 0 && ::listen(fd.get(), 8) == 0;
  if (!bound) throw systemError("cannot listen at " + path);
  return fd;
}

std::string keyPathOf(const std::string& socketPath) {
  return socketPath + ".key";
}

}  // namespace

namespace {

struct stat requireFolder(const std::string& setting, const std::string& folder) {
  struct stat found {};
  if (::stat(folder.c_str(), &found) != 0) {
    throw Error(moeInvalidArgument, fmt::format("{} is {}: {}", setting, folder, std::strerror(errno)));
  }
  if (!S_ISDIR(found.st_mode))
    throw Error(moeInvalidArgument, fmt::format("{} is {}, which is not a folder", setting, folder));
  return found;
}

}  // namespace

void requireWritableFolder(const std::string& setting, const std::string& folder) {
  requireFolder(setting, folder);
  if (::access(folder.c_str(), W_OK | X_OK) == 0) return;
  throw Error(moeInvalidArgument,
              fmt::format("{} is {}, where this process may not write: {}", setting, folder, std::strerror(errno)));
}

void requireOwnFolder(const std::string& setting, const std::string& folder) {
  const struct stat found = requireFolder(setting, folder);
  if (found.st_uid != ::geteuid() || (found.st_mode & (S_IWGRP | S_IWOTH)) != 0) {
    throw Error(moeInvalidArgument,
                fmt::format("{} is {}, where others may write: it must be this user's, with mode 0700 or 0755", setting,
                            folder));
  }
}

Watch::Watch(const WatchPlan& plan, Texts texts, const Log& log)
    : plan_(plan), texts_(std::move(texts)), log_(log), bell_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  if (!bell_) throw systemError("eventfd");
  try {
    if (!plan_.socketPath.empty()) offerSocket();
    thread_ = startQuietThread([this] { run(); });
  } catch (...) {
    removeFiles();
    throw;
  }
}

void Watch::finish() noexcept {
  if (!thread_.joinable()) return;
  over_ = true;
  ring();
  thread_.join();
  removeFiles();
}

void Watch::offerSocket() {
  std::vector<Fd> listeners;
  listeners.push_back(listenAt(plan_.socketPath));
  writeWholeFile(keyPathOf(plan_.socketPath), fmt::format("{:02x}\n", fmt::join(plan_.key, "")));
  lobby_ = std::make_unique<bootstrap::Lobby>(std::move(listeners), plan_.key, maskOf(FrameType::dumpRequest), kLimits,
                                              isOwnUser);
}

void Watch::removeFiles() noexcept {
  if (plan_.socketPath.empty()) return;
  ::unlink(plan_.socketPath.c_str());
  try {
    ::unlink(keyPathOf(plan_.socketPath).c_str());
  } catch (const std::exception&) {  // NOLINT: no memory for its name; the key opens nothing any more
  }
}

void Watch::failed() noexcept {
  failed_ = true;
  ring();
}

void Watch::goOn() noexcept {
  const Deadline end = Deadline::after(kDumpEnd);
  while (failed_ && !dumped_ && !end.expired()) std::this_thread::sleep_for(milliseconds(1));
  failed_ = false;
  dumped_ = false;
}

void Watch::ring() noexcept {
  const std::uint64_t one = 1;
  (void)!::write(bell_.get(), &one, sizeof one);  // if it is full, the thread is already awake
}

void Watch::run() {
  bootstrap::PollSet set;
  for (;;) {
    const bool over = over_;  // read before `failed_`: a failure is dumped even when the watch ends
    if (failed_ && !dumped_) dump();
    if (over) return;
    try {
      look(set);
    } catch (const std::exception& error) {  // out of memory or descriptors: strangers must not end the watch
      log_.write(moeLogWarn, "comm", "while answering a client of the watch: {}", error.what());
      guests_.clear();
      std::this_thread::sleep_for(milliseconds(100));
    }
  }
}

// Waits for something to happen, and handles it.
void Watch::look(bootstrap::PollSet& set) {
  set.clear();
  const std::size_t bell = set.add(bell_.get(), POLLIN);
  int wait = 1 << 30;
  if (lobby_ && guests_.size() < kGuestsMax) {
    lobby_->arm(set);
    wait = lobby_->waitMsMax();
  }
  for (Guest& guest : guests_) {
    guest.index = set.add(guest.link->fd(), guest.link->wanted());
    wait = std::min(wait, guest.end.leftMs());
  }
  const bool served = lobby_ && guests_.size() < kGuestsMax;
  set.wait(wait);
  std::uint64_t rings = 0;
  if (set.at(bell) != 0) (void)!::read(bell_.get(), &rings, sizeof rings);
  for (Guest& guest : guests_) guest.link->pump(set.at(guest.index));
  std::erase_if(
      guests_, [](const Guest& guest) { return guest.link->closed() || guest.link->drained() || guest.end.expired(); });
  if (!served) return;
  lobby_->serve(set);
  for (auto& link : lobby_->takeGuests()) answer(std::move(link));
}

// A guest gets one answer; it may come again.
void Watch::answer(std::unique_ptr<bootstrap::Link> link) {
  if (guests_.size() >= kGuestsMax || !link->next()) return;
  const std::string text = texts_.forClient();
  const auto* bytes = reinterpret_cast<const std::uint8_t*>(text.data());
  link->send(FrameType::dumpReply, plan_.rank, {bytes, text.size()});
  link->pump(POLLOUT);
  if (!link->drained()) guests_.push_back({std::move(link), Deadline::after(kAnswerEnd), 0});
}

void Watch::dump() noexcept {
  try {
    if (plan_.dumpPath.empty()) return dumped_.store(true);
    writeWholeFile(plan_.dumpPath, texts_.forFailure());
    log_.write(moeLogWarn, "comm", "the latest steps are in {}", plan_.dumpPath);
  } catch (const std::exception& error) {
    log_.write(moeLogWarn, "comm", "no dump of the failure: {}", error.what());
  }
  dumped_ = true;
}

}  // namespace moe
