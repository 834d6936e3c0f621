// Passes a file descriptor to other processes of this host, by an abstract UNIX socket and SCM_RIGHTS. The socket's
// name and its handshake come from a key, so different keys never meet. A killed process leaves nothing behind, and no
// privilege is needed. The channel reaches only processes of the same network namespace and the same user. Every local
// user can see the socket in /proc/net/unix, so its name is no secret and gives no protection.
#pragma once

#include <memory>
#include <string>

#include "base/deadline.h"
#include "base/fd.h"
#include "bootstrap/net/keyed_hash.h"
#include "bootstrap/net/lobby.h"

namespace moe::bootstrap {

// Gives a duplicate of `fd` to everyone who proves to know `key`, as part of a poll loop.
class FdServer : public Source {
 public:
  FdServer(const Key& key, int fd);  // throws moeSystemError, also if this key is already served

  void arm(PollSet& set) override { lobby_.arm(set); }
  void serve(const PollSet& set) override;
  int waitMsMax() const override { return lobby_.waitMsMax(); }

 private:
  Lobby lobby_;
  Fd fd_;
};

// Asks for the descriptor of `key`, as part of a poll loop. Tries again while nobody serves it.
class FdFetch : public Source {
 public:
  explicit FdFetch(const Key& key) : key_(key) {}

  void arm(PollSet& set) override;
  void serve(const PollSet& set) override;
  int waitMsMax() const override { return link_ ? 1 << 30 : kRetryMs; }

  bool done() const { return static_cast<bool>(fd_); }
  Fd take() { return std::move(fd_); }
  const std::string& problem() const { return problem_; }  // problem of the latest attempt

 private:
  static constexpr int kRetryMs = 2;
  Key key_;
  std::unique_ptr<Link> link_;
  std::size_t index_ = 0;
  bool asked_ = false;
  Fd fd_;
  std::string problem_;
};

// Fetches the descriptor and waits for it. Throws moeTimeout.
Fd fetchFd(const Key& key, Deadline deadline);

}  // namespace moe::bootstrap
