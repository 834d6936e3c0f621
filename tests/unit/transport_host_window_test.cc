// Windows in host memory between processes, and which files are mapped.
#include <fcntl.h>
#include <sys/mman.h>

#include <cstdlib>
#include <cstring>

#include "support/base/mappings.h"
#include "support/base/process_limit.h"
#include "transport/window.h"
#include "unit/bootstrap_world.h"

namespace moe::test {
namespace {

constexpr std::size_t kWindowBytes = 65536;

WindowCard cardOf(const Window& window, std::int32_t process) {
  WindowCard card;
  card.host = bootstrap::HostIdentity::current();
  card.host.processId = process;
  window.describe(&card);
  return card;
}

Fd fileOf(std::size_t bytes, int seals) {
  Fd fd(::memfd_create("moecomm-test", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  EXPECT_EQ(::ftruncate(fd.get(), static_cast<off_t>(bytes)), 0);
  EXPECT_EQ(::fcntl(fd.get(), F_ADD_SEALS, seals), 0);
  return fd;
}

// The outcome when rank 1, another process, passes this file for its window of kWindowBytes.
Outcome open(int fd) {
  const auto mine = makeHostWindow(kWindowBytes, {});
  const auto theirs = makeHostWindow(kWindowBytes, {});
  return outcomeOf([&] {
    const auto duplicate = [&](int) { return Fd(::fcntl(fd, F_DUPFD_CLOEXEC, 0)); };
    const PeerWindow window = mine->open(1, cardOf(*mine, 100), cardOf(*theirs, 101), duplicate);
    window.memory.get()[kWindowBytes - 1] = 1;
  });
}

TEST(HostWindow, IsMappedByOtherProcesses) {
  const auto window = makeHostWindow(kWindowBytes, {});
  const Outcome outcome = open(window->fd());
  EXPECT_EQ(outcome.result, moeSuccess) << outcome.sentence;
  EXPECT_EQ(window->base()[kWindowBytes - 1], 1);
}

// Without a word the kernel would end the process by SIGXFSZ.
TEST(HostWindow, ThatIsLargerThanAFileMayBeIsRefusedWithTheLimit) {
  const ProcessLimit limit(RLIMIT_FSIZE, 4096);
  const Outcome outcome = outcomeOf([] { makeHostWindow(kWindowBytes, {}); });
  EXPECT_EQ(outcome.result, moeSystemError);
  EXPECT_EQ(outcome.sentence, "cannot size the window to 65536 bytes: File too large (limit 4096 bytes, ulimit -f)");
  sigset_t pending;
  ASSERT_EQ(::sigpending(&pending), 0);
  EXPECT_EQ(sigismember(&pending, SIGXFSZ), 0);
}

// Otherwise a process with the descriptor could cut the file, and every access beyond its end would be a SIGBUS.
TEST(HostWindow, CannotBeCutOrGrown) {
  const auto window = makeHostWindow(kWindowBytes, {});
  EXPECT_EQ(::ftruncate(window->fd(), 4096), -1);
  EXPECT_EQ(errno, EPERM);
  EXPECT_EQ(::ftruncate(window->fd(), 2 * kWindowBytes), -1);
  EXPECT_EQ(errno, EPERM);
  EXPECT_EQ(::fcntl(window->fd(), F_ADD_SEALS, F_SEAL_WRITE), -1);
  EXPECT_EQ(errno, EPERM);
}

TEST(HostWindow, AFileThatCouldBeCutIsNotMapped) {
  for (const int seals : {0, F_SEAL_GROW | F_SEAL_SEAL}) {
    const Outcome outcome = open(fileOf(kWindowBytes, seals).get());
    EXPECT_EQ(outcome.result, moeRemoteError);
    EXPECT_EQ(outcome.sentence, "the window of rank 1 is not sealed, so its owner could truncate it");
  }
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  const Fd reader(ends[0]), writer(ends[1]);
  EXPECT_EQ(open(writer.get()).sentence, "the window of rank 1 is not sealed, so its owner could truncate it");
}

TEST(HostWindow, AFileOfAnotherSizeIsNotMapped) {
  for (const std::size_t bytes : {std::size_t{0}, std::size_t{4096}, 2 * kWindowBytes}) {
    const Outcome outcome = open(fileOf(bytes, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL).get());
    EXPECT_EQ(outcome.result, moeRemoteError);
    EXPECT_EQ(outcome.sentence,
              "the window of rank 1 is a file of " + std::to_string(bytes) + " bytes, but its owner announced 65536");
  }
}

// ---- Memory that changes under the same addresses ----

TEST(HostWindow, TakesFreshMemoryToTheSameAddresses) {
  const auto window = makeHostWindow(kWindowBytes, {});
  std::uint8_t* const base = window->base();
  EXPECT_EQ(window->whyFixed(), "");
  EXPECT_EQ(window->rangeBytes(), kWindowBytes);
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(base[0], 0);
    EXPECT_EQ(base[kWindowBytes - 1], 0);
    std::memset(base, 1, kWindowBytes);
    window->giveBack();
    EXPECT_LT(window->fd(), 0);
    const Mapping reserved = mappingAt(base);
    EXPECT_GE(reserved.bytes, kWindowBytes);
    EXPECT_FALSE(reserved.accessible);
    EXPECT_EQ(reserved.residentBytes, 0U);
    window->takeAnew();
    EXPECT_EQ(window->base(), base);
    EXPECT_GE(window->fd(), 0);
  }
}

// A peer's mapping, too, keeps its addresses, and is of the memory that the owner has now.
TEST(HostWindow, IsMappedAnewByPeersAtTheSameAddresses) {
  const auto mine = makeHostWindow(kWindowBytes, {}), theirs = makeHostWindow(kWindowBytes, {});
  const auto fetch = [&](int) { return Fd(::fcntl(theirs->fd(), F_DUPFD_CLOEXEC, 0)); };
  const PeerWindow peer = mine->open(1, cardOf(*mine, 100), cardOf(*theirs, 101), fetch);
  ASSERT_NE(peer.range, nullptr);
  std::uint8_t* const at = peer.memory.get();
  EXPECT_EQ(peer.range->base(), at);
  at[5] = 7;
  EXPECT_EQ(theirs->base()[5], 7);
  peer.range->unmap();
  EXPECT_FALSE(peer.range->mapped());
  EXPECT_FALSE(mappingAt(at).accessible);
  theirs->giveBack();
  theirs->takeAnew();
  peer.range->map(fetch(1));
  EXPECT_EQ(at[5], 0);
  at[6] = 8;
  EXPECT_EQ(theirs->base()[6], 8);
  EXPECT_EQ(theirs->base()[5], 0);
}

TEST(HostWindow, ThatGetsNoMemoryStaysReservedAndMayTryAgain) {
  const auto window = makeHostWindow(kWindowBytes, {});
  window->giveBack();
  {
    const ProcessLimit limit(RLIMIT_FSIZE, 4096);
    EXPECT_EQ(outcomeOf([&] { window->takeAnew(); }).result, moeSystemError);
  }
  EXPECT_LT(window->fd(), 0);
  EXPECT_FALSE(mappingAt(window->base()).accessible);
  EXPECT_GE(mappingAt(window->base()).bytes, kWindowBytes);
  window->giveBack();  // there is nothing to give
  window->takeAnew();
  EXPECT_EQ(window->base()[0], 0);
}

// A peer that announces another size, or passes a file that could be cut, must not be mapped into the range.
TEST(HostWindow, AnewMapsOnlyAFileOfTheSameSizeThatIsSealed) {
  const auto mine = makeHostWindow(kWindowBytes, {}), theirs = makeHostWindow(kWindowBytes, {});
  const auto fetch = [&](int) { return Fd(::fcntl(theirs->fd(), F_DUPFD_CLOEXEC, 0)); };
  const PeerWindow peer = mine->open(1, cardOf(*mine, 100), cardOf(*theirs, 101), fetch);
  peer.range->unmap();
  EXPECT_EQ(outcomeOf([&] { peer.range->map(fileOf(kWindowBytes, 0)); }).result, moeRemoteError);
  constexpr int kSealed = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;
  EXPECT_EQ(outcomeOf([&] { peer.range->map(fileOf(4096, kSealed)); }).result, moeRemoteError);
  EXPECT_EQ(outcomeOf([&] { peer.range->map(FabricHandle{}); }).sentence,
            "the window of rank 1 is host memory, which has no handle of the fabric");
  EXPECT_FALSE(mappingAt(peer.memory.get()).accessible);
}

TEST(HostWindow, OfTheCallersAllocatorIsFixed) {
  const Allocator allocator{[](void*, std::size_t bytes, std::int32_t) { return std::aligned_alloc(256, bytes); },
                            [](void*, void* memory, std::size_t, std::int32_t) { std::free(memory); }, nullptr};
  const auto window = makeHostWindow(kWindowBytes, allocator);
  EXPECT_TRUE(window->whyFixed().starts_with("is memory of config.allocate")) << window->whyFixed();
  EXPECT_EQ(window->rangeBytes(), 0U);
}

}  // namespace
}  // namespace moe::test
