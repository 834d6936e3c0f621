#include "bootstrap/net/resolve_host.h"

#include <fmt/format.h>
#include <netdb.h>

#include <condition_variable>
#include <memory>
#include <mutex>

#include "base/error.h"
#include "base/quiet_thread.h"

namespace moe::bootstrap {
namespace {

// getaddrinfo() has no deadline. A name server that does not answer costs 10 s and more, whatever the caller's timeout
// is. So a separate thread asks. It owns what it needs and outlives a caller that has stopped waiting. getaddrinfo_a()
// is no alternative: the thread sanitizer does not know libc's own threads, and crashes in them.
struct Question {
  std::string host;
  int error = EAI_AGAIN;
  int systemError = 0;  // errno, with EAI_SYSTEM
  std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> found{nullptr, &::freeaddrinfo};
  std::mutex mutex;
  std::condition_variable isAnswered;
  bool answered = false;

  void ask(int flags) {
    addrinfo hints{};
    hints.ai_family = AF_UNSPEC;
    hints.ai_socktype = SOCK_STREAM;
    hints.ai_flags = flags;
    addrinfo* list = nullptr;
    error = ::getaddrinfo(host.c_str(), nullptr, &hints, &list);
    systemError = error == EAI_SYSTEM ? errno : 0;
    if (error == 0) found.reset(list);
  }
};

std::shared_ptr<Question> askFor(const std::string& host, std::chrono::milliseconds timeout) {
  auto question = std::make_shared<Question>();
  question->host = host;
  question->ask(AI_NUMERICHOST);  // numeric addresses need no name server
  if (question->error == 0) return question;
  std::thread thread = startQuietThread([question] {
    question->ask(0);
    const std::lock_guard lock(question->mutex);
    question->answered = true;
    question->isAnswered.notify_one();
  });
  std::unique_lock lock(question->mutex);
  const bool answered = question->isAnswered.wait_for(lock, timeout, [&] { return question->answered; });
  lock.unlock();
  if (!answered) {
    thread.detach();
    throw Error(moeTimeout, fmt::format("host {} was not resolved within {} ms", host, timeout.count()));
  }
  thread.join();
  if (question->error != 0) {
    const std::string why =
        question->systemError != 0 ? errorText(question->systemError) : ::gai_strerror(question->error);
    throw Error(moeSystemError, fmt::format("cannot resolve host {}: {}", host, why));
  }
  return question;
}

}  // namespace

std::vector<Address> resolveHost(const std::string& host, std::uint16_t port, std::chrono::milliseconds timeout) {
  const auto question = askFor(host, timeout);
  std::vector<Address> addresses;
  for (const addrinfo* entry = question->found.get(); entry != nullptr && addresses.size() < kAddressCountMax;
       entry = entry->ai_next) {
    if (entry->ai_family != AF_INET && entry->ai_family != AF_INET6) continue;
    Address address = Address::of(entry->ai_addr);
    address.port = port;
    addOnce(addresses, address);
  }
  if (addresses.empty()) throw Error(moeSystemError, fmt::format("host {} has no IPv4 or IPv6 address", host));
  return addresses;
}

}  // namespace moe::bootstrap
