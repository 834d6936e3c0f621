// Names of UNIX sockets, and the user at the other end of one.
#pragma once

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstddef>
#include <cstring>
#include <optional>
#include <string_view>

namespace moe {

class UnixName {
 public:
  static constexpr std::size_t kPathMax = sizeof(sockaddr_un::sun_path) - 1;

  // A socket that is a file. Nothing if the path has more than kPathMax bytes.
  static std::optional<UnixName> ofFile(std::string_view path) {
    if (path.size() > kPathMax) return std::nullopt;
    UnixName name;
    std::memcpy(name.address_.sun_path, path.data(), path.size());
    name.bytes_ = sizeof name.address_;
    return name;
  }
  // A socket in the abstract namespace, whose name ends with the socket. `text` has at most kPathMax bytes.
  static UnixName abstract(std::string_view text) {
    UnixName name;
    std::memcpy(name.address_.sun_path + 1, text.data(), text.size());
    name.bytes_ = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + text.size());
    return name;
  }

  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&address_); }
  socklen_t bytes() const { return bytes_; }

 private:
  UnixName() { address_.sun_family = AF_UNIX; }

  sockaddr_un address_{};
  socklen_t bytes_ = 0;
};

// Nothing if that cannot be found out. For a listener, it is the user who called listen().
inline std::optional<uid_t> userOf(int socket) {
  ucred peer{};
  socklen_t length = sizeof peer;
  if (::getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer, &length) != 0) return std::nullopt;
  return peer.uid;
}
inline bool isOwnUser(int socket) {
  return userOf(socket) == ::geteuid();
}

}  // namespace moe
