// Passes a file descriptor to other processes of this host: an abstract UNIX socket whose name and handshake come from
// a key, and SCM_RIGHTS. Different keys never meet, nothing exists outside the sockets (a killed process leaves
// nothing), and no privilege is needed. Reaches processes of the same network namespace and the same user only. Every
// local user sees the socket (in /proc/net/unix): its name is no secret, and keeps nobody out.
#pragma once

#include <memory>
#include <string>

#include "base/deadline.h"
#include "base/fd.h"
#include "bootstrap/net/lobby.h"
#include "bootstrap/net/siphash.h"

namespace moe::bootstrap {

// Gives a duplicate of `fd` to everybody who proves `key`, while it is part of a poll loop.
class FdServer : public Source {
 public:
  FdServer(const Key& key, int fd);  // throws moeSystemError, also if this key is served already

  void arm(PollSet& set) override { lobby_.arm(set); }
  void serve(const PollSet& set) override;
  int waitMsMax() const override { return lobby_.waitMsMax(); }

 private:
  Lobby lobby_;
  Fd fd_;
};

// Asks for the descriptor of `key`, as part of a poll loop; tries again while nobody serves it.
class FdFetch : public Source {
 public:
  explicit FdFetch(const Key& key) : key_(key) {}

  void arm(PollSet& set) override;
  void serve(const PollSet& set) override;
  int waitMsMax() const override { return link_ ? 1 << 30 : kRetryMs; }

  bool done() const { return static_cast<bool>(fd_); }
  Fd take() { return std::move(fd_); }
  const std::string& problem() const { return problem_; }  // of the latest attempt

 private:
  static constexpr int kRetryMs = 2;
  Key key_;
  std::unique_ptr<Link> link_;
  std::size_t index_ = 0;
  bool asked_ = false;
  Fd fd_;
  std::string problem_;
};

// The same, waiting for it. Throws moeTimeout.
Fd fetchFd(const Key& key, Deadline deadline);

}  // namespace moe::bootstrap
