// A log line that cannot be written is lost, without any other effect.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <functional>
#include <stdexcept>

#include "base/fd.h"
#include "base/log.h"

namespace moe::test {
namespace {

Log::Options toFile(const std::string& file) {
  Log::Options options;
  options.file = file;
  return options;
}

struct Pipe {
  Pipe() {
    std::array<int, 2> ends{};
    EXPECT_EQ(::pipe2(ends.data(), O_CLOEXEC), 0);
    reader = Fd(ends[0]);
    writer = Fd(ends[1]);
  }
  std::string path() const { return "/proc/self/fd/" + std::to_string(writer.get()); }
  Fd reader, writer;
};

// The exit status of a forked child that runs `body` with the signal settings of a fresh program.
int statusOf(const std::function<void()>& body) {
  const pid_t child = ::fork();
  if (child == 0) {
    ::signal(SIGPIPE, SIG_DFL);
    try {
      body();
    } catch (...) {
      ::_exit(9);
    }
    ::_exit(0);
  }
  int status = -1;
  EXPECT_EQ(::waitpid(child, &status, 0), child);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

TEST(Log, WritesOneLine) {
  const std::string file = ::testing::TempDir() + "log_%p";
  const std::string name = ::testing::TempDir() + "log_" + std::to_string(::getpid());
  Log(toFile(file), 3, 16).write(moeLogWarn, "net", "rank {} has died", 7);
  std::string text;
  std::getline(std::ifstream(name), text, '\0');
  std::array<char, 256> host{};
  ::gethostname(host.data(), host.size() - 1);
  EXPECT_EQ(text, fmt::format("moecomm warn [rank 3/16 {}:{}] net: rank 7 has died\n", host.data(), ::getpid()));
  std::filesystem::remove(name);
}

TEST(Log, ALineThatFindsTheDiskFullIsLost) {
  const Log log(toFile("/dev/full"), 0, 1);
  log.write(moeLogWarn, "net", "rank {} has died", 7);
}

TEST(Log, StandardErrorOnAFullDiskIsNoFailure) {
  EXPECT_EQ(statusOf([] {
              const Fd full(::open("/dev/full", O_WRONLY));
              ::dup2(full.get(), 2);
              Log().write(moeLogWarn, "net", "rank {} has died", 7);
            }),
            0);
}

// A program that does not handle SIGPIPE survives, and its signal settings stay unchanged.
TEST(Log, AClosedPipeEndsNobody) {
  EXPECT_EQ(statusOf([] {
              Pipe pipe;
              ::dup2(pipe.writer.get(), 2);
              pipe.reader.reset();
              Log().write(moeLogWarn, "net", "rank {} has died", 7);
              sigset_t now;
              ::sigpending(&now);
              if (sigismember(&now, SIGPIPE) != 0) ::_exit(1);
              ::pthread_sigmask(SIG_SETMASK, nullptr, &now);
              if (sigismember(&now, SIGPIPE) != 0) ::_exit(2);
            }),
            0);
}

// The next file that is opened gets the descriptor number of standard error. It must not get the log's lines.
// The same of SIGXFSZ, which a write raises at the limit of ulimit -f.
TEST(Log, AFileThatMayGrowNoMoreEndsNobody) {
  const std::string file = ::testing::TempDir() + "log_limit_" + std::to_string(::getpid());
  EXPECT_EQ(statusOf([&] {
              const rlimit limit{64, RLIM_INFINITY};
              if (::setrlimit(RLIMIT_FSIZE, &limit) != 0) ::_exit(3);
              const Log log(toFile(file), 0, 1);
              for (int i = 0; i < 8; ++i) log.write(moeLogWarn, "net", "a line of more than some bytes, number {}", i);
              sigset_t now;
              sigpending(&now);
              if (sigismember(&now, SIGXFSZ) != 0) ::_exit(1);
              pthread_sigmask(SIG_SETMASK, nullptr, &now);
              if (sigismember(&now, SIGXFSZ) != 0) ::_exit(2);
            }),
            0);
  EXPECT_EQ(std::filesystem::file_size(file), 64U);
  std::filesystem::remove(file);
}

TEST(Log, ALineForAStandardErrorThatIsClosedIsLost) {
  EXPECT_EQ(statusOf([] {
              ::close(2);
              const Log log;
              const Fd memory(::memfd_create("next", 0));
              log.write(moeLogWarn, "net", "rank {} has died", 7);
              if (memory.get() != 2 || ::lseek(memory.get(), 0, SEEK_END) != 0) ::_exit(1);
            }),
            0);
}

TEST(Log, AReaderThatDoesNotReadHoldsNobodyUp) {
  const Pipe pipe;
  const Log log(toFile(pipe.path()), 0, 1);
  const auto before = std::chrono::steady_clock::now();
  for (int i = 0; i < 100000; ++i) log.write(moeLogWarn, "net", "rank {} has died", i);
  EXPECT_LT(std::chrono::steady_clock::now() - before, std::chrono::seconds(20));
}

TEST(Log, ACallersFunctionThatThrowsIsNoFailure) {
  Log::Options options;
  options.sink = [](void*, std::int32_t, const char*) { throw std::runtime_error("from the caller"); };
  Log(options, 0, 1).write(moeLogWarn, "net", "rank {} has died", 7);
}

}  // namespace
}  // namespace moe::test
