#include "bootstrap/group/fd_channel.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <optional>

#include "base/error.h"
#include "base/unix_socket.h"

namespace moe::bootstrap {
namespace {

constexpr int kSocketFlags = SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC;
constexpr Lobby::Limits kFdLimits{256, std::chrono::milliseconds(5000), std::chrono::milliseconds(200)};

// A hash of the key, so that two groups do not collide by accident.
UnixName nameOf(const Key& key) {
  const Key hash = deriveKey(key, "fd name");
  return UnixName::abstract(fmt::format("moecomm-fd-{:02x}", fmt::join(hash, "")));
}

std::vector<Fd> listenLocal(const Key& key) {
  Fd fd(::socket(AF_UNIX, kSocketFlags, 0));
  if (!fd) throw systemError("socket");
  const UnixName name = nameOf(key);
  if (::bind(fd.get(), name.get(), name.bytes()) != 0 || ::listen(fd.get(), 4096) != 0) {
    throw systemError("cannot listen on an abstract UNIX socket");
  }
  std::vector<Fd> listeners;
  listeners.push_back(std::move(fd));
  return listeners;
}

// The kernel does not say why it kept a descriptor back. Making another one does.
Error cannotTake(int socket) {
  const Fd probe(::fcntl(socket, F_DUPFD_CLOEXEC, 0));
  const std::string why = probe ? "it was kept back" : errorText(errno);
  return Error(moeSystemError, "cannot take a descriptor that another rank passes: " + why);
}

}  // namespace

FdServer::FdServer(const Key& key, int fd)
    : lobby_(listenLocal(key), key, maskOf(FrameType::fdRequest), kFdLimits, isOwnUser),
      fd_(::fcntl(fd, F_DUPFD_CLOEXEC, 0)) {
  if (!fd_) throw systemError("cannot duplicate the descriptor to pass");
}

void FdServer::serve(const PollSet& set) {
  lobby_.serve(set);
  if (const auto why = lobby_.shortage(kShortageMax)) throw Error(*why);
  const auto reply = std::make_shared<const std::vector<std::uint8_t>>(encodeFrame(FrameType::fdReply, 0));
  for (auto& guest : lobby_.takeGuests())
    guest->sendFd(reply, fd_.get());  // also closes; the guest asks again if the reply did not fit
}

void FdFetch::arm(PollSet& set) {
  if (!link_) {
    Fd socket(::socket(AF_UNIX, kSocketFlags, 0));
    if (!socket) throw systemError("socket");
    const UnixName name = nameOf(key_);
    if (::connect(socket.get(), name.get(), name.bytes()) != 0) {
      problem_ = std::strerror(errno);  // not served yet, or too many requests at once
      return;
    }
    if (const auto user = userOf(socket.get()); user != ::geteuid()) {
      problem_ = fmt::format("its socket belongs to user {}, this process to user {}",
                             user ? std::to_string(*user) : "unknown", ::geteuid());
      return;
    }
    link_ = std::make_unique<Link>(std::move(socket), Handshake::Side::client, key_, maskOf(FrameType::fdReply));
    link_->wantFd();
    asked_ = false;
  }
  index_ = set.add(link_->fd(), link_->wanted());
}

void FdFetch::serve(const PollSet& set) {
  if (!link_ || done()) return;
  link_->pump(set.at(index_));
  if (link_->open() && !asked_) {
    link_->send(FrameType::fdRequest, 0);
    link_->pump(POLLOUT);
    asked_ = true;
  }
  if (const auto frame = link_->next()) fd_ = link_->takeFd();
  if (link_->lostFd()) throw cannotTake(link_->fd());
  if (!link_->closed()) return;
  if (!done()) problem_ = link_->reason().empty() ? "it closed the connection" : link_->reason();
  link_.reset();
}

Fd fetchFd(const Key& key, Deadline deadline) {
  FdFetch fetch(key);
  PollSet set;
  while (!fetch.done() && !deadline.expired()) {
    set.clear();
    fetch.arm(set);
    set.wait(std::min(deadline.leftMs(), fetch.waitMsMax()));
    fetch.serve(set);
  }
  if (!fetch.done())
    throw Error(moeTimeout, fmt::format("the descriptor was not passed in time ({})", fetch.problem()));
  return fetch.take();
}

}  // namespace moe::bootstrap
