// Limits of this process while an object lives.
#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

namespace moe::test {

class ProcessLimit {
 public:
  ProcessLimit(int resource, rlim_t most) : resource_(static_cast<decltype(resource_)>(resource)) {
    EXPECT_EQ(::getrlimit(resource_, &before_), 0);
    const rlimit limit{most, before_.rlim_max};
    EXPECT_EQ(::setrlimit(resource_, &limit), 0);
  }
  ~ProcessLimit() { EXPECT_EQ(::setrlimit(resource_, &before_), 0); }
  ProcessLimit(const ProcessLimit&) = delete;
  ProcessLimit& operator=(const ProcessLimit&) = delete;

 private:
  __rlimit_resource resource_;
  rlimit before_{};
};

// Leaves this process only this many free descriptors.
class FewDescriptors {
 public:
  explicit FewDescriptors(int room) : limit_(RLIMIT_NOFILE, firstBeyond(room)) {}

 private:
  static rlim_t firstBeyond(int room) {
    int fd = 0;
    for (int found = 0; found < room; ++fd) found += ::fcntl(fd, F_GETFD) < 0 ? 1 : 0;
    while (::fcntl(fd, F_GETFD) >= 0) ++fd;
    return static_cast<rlim_t>(fd);
  }

  ProcessLimit limit_;
};

}  // namespace moe::test
