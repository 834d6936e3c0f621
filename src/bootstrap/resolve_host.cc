#include "bootstrap/resolve_host.h"

#include <fmt/format.h>
#include <netdb.h>

#include <memory>
#include <utility>

#include "base/deadline.h"
#include "base/error.h"

namespace moe::bootstrap {
namespace {

using Found = std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)>;

// A question to the resolver, which libc asks on a thread of its own. getaddrinfo() has no deadline: a name server that
// does not answer takes it half a minute, however short the timeout of who asks.
class Question {
 public:
  explicit Question(const std::string& host) : host_(host) {
    hints_.ai_family = AF_UNSPEC;
    hints_.ai_socktype = SOCK_STREAM;
    hints_.ai_flags = AI_NUMERICHOST;
    request_.ar_name = host_.c_str();
    request_.ar_request = &hints_;
  }
  Question(const Question&) = delete;
  Question& operator=(const Question&) = delete;

  // 0, or why there is no answer; EAI_INPROGRESS: not yet. A numeric address needs nobody.
  int askHere() { return ::getaddrinfo(host_.c_str(), nullptr, &hints_, &request_.ar_result); }
  int ask(const Deadline& deadline) {
    hints_.ai_flags = 0;
    gaicb* requests[] = {&request_};
    if (const int error = ::getaddrinfo_a(GAI_NOWAIT, requests, 1, nullptr); error != 0) return error;
    for (;;) {
      const int left = deadline.leftMs();
      const timespec atMost{left / 1000, left % 1000 * 1000000L};
      ::gai_suspend(requests, 1, &atMost);  // says little: glibc 2.36 returns EAI_SYSTEM when the time is over
      const int error = ::gai_error(&request_);
      if (error != EAI_INPROGRESS || deadline.expired()) return error;
    }
  }

  // True if nobody works on it any more.
  bool isOver() { return ::gai_cancel(&request_) != EAI_NOTCANCELED; }

  Found answer() { return {std::exchange(request_.ar_result, nullptr), &::freeaddrinfo}; }

 private:
  std::string host_;
  addrinfo hints_{};
  gaicb request_{};
};

Found ask(const std::string& host, std::chrono::milliseconds timeout) {
  auto question = std::make_unique<Question>(host);
  if (question->askHere() == 0) return question->answer();
  const int error = question->ask(Deadline::after(timeout));
  if (error == 0) return question->answer();
  if (error != EAI_INPROGRESS) {
    throw Error(moeSystemError, fmt::format("cannot resolve host {}: {}", host, ::gai_strerror(error)));
  }
  if (!question->isOver()) static_cast<void>(question.release());  // libc's thread still writes to it: it stays
  throw Error(moeTimeout, fmt::format("host {} was not resolved within {} ms", host, timeout.count()));
}

}  // namespace

std::vector<Address> resolveHost(const std::string& host, std::uint16_t port, std::chrono::milliseconds timeout) {
  const Found found = ask(host, timeout);
  std::vector<Address> addresses;
  for (const addrinfo* entry = found.get(); entry != nullptr && addresses.size() < kAddressCountMax;
       entry = entry->ai_next) {
    if (entry->ai_family != AF_INET && entry->ai_family != AF_INET6) continue;
    addresses.push_back(Address::of(entry->ai_addr));
    addresses.back().port = port;
  }
  if (addresses.empty()) throw Error(moeSystemError, fmt::format("host {} has no IPv4 or IPv6 address", host));
  return addresses;
}

}  // namespace moe::bootstrap
