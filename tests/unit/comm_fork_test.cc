// Processes that a rank has forked, as data loaders do. They hold copies of its sockets and of its communicator.
#include <cstring>

#include "moecomm.h"
#include "unit/bootstrap_world.h"

namespace moe::test {
namespace {

constexpr int kTimeoutMs = 60000;  // no wait here lasts this long

struct Member {
  moeComm_t comm = nullptr;
  moeHandle_t handle = nullptr;
  std::int32_t experts[2] = {0, 1};

  Member(int rank, int nranks, const moeUniqueId_t& id) {
    moeConfig_t config = MOE_CONFIG_INITIALIZER;
    config.backend = moeBackendHost;
    config.timeoutMs = kTimeoutMs;
    config.logLevel = moeLogNone;
    config.tokensMax = config.llTokensMax = 4;
    config.rowBytesMax = 256;
    check(moeCommInit(&comm, nranks, rank, &id, &config), moeGetLastError(nullptr));
    moeHandleConfig_t shape = MOE_HANDLE_CONFIG_INITIALIZER;
    shape.experts = nranks;
    shape.topk = 1;
    shape.mode = moeModeHt;
    check(moeHandleCreate(&handle, comm, &shape), moeGetLastError(comm));
  }
  moeResult_t route() { return moeRoute(handle, experts, nullptr, 2, nullptr); }
  void routeWell() { check(route(), moeGetLastError(comm)); }
  void destroy() { check(moeCommDestroy(comm), "destroy"); }
  static void check(moeResult_t result, const char* text) {
    if (result != moeSuccess) throw Error(result, text);
  }
};

// Runs body() in a forked process, which ends after `seconds` at the latest. Returns the exit status.
int inFork(unsigned seconds, const std::function<void()>& body) {
  const pid_t child = ::fork();
  if (child == 0) {
    ::alarm(seconds);
    const Outcome outcome = outcomeOf(body);
    if (outcome.result != moeSuccess) (void)!::write(2, outcome.sentence.data(), outcome.sentence.size());
    ::_exit(outcome.result == moeSuccess ? 0 : 1);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  return WIFSIGNALED(status) ? -WTERMSIG(status) : WEXITSTATUS(status);
}

// Expects the sentence of a call that is refused in a forked process.
void expectRefused(moeResult_t result, moeComm_t comm, pid_t owner, const char* call) {
  const std::string expected = "the communicator belongs to process " + std::to_string(owner) +
                               ", which forked this process (" + std::to_string(::getpid()) +
                               "): only moeCommDestroy may be called here";
  const char* said = moeGetLastError(comm);
  if (result == moeInvalidUsage && said == expected) return;
  throw Error(moeInternalError, std::string(call) + " says " + std::to_string(result) + ": " + said + "\n");
}

void tryEverything(Member& member, pid_t owner) {
  const auto refused = [&](moeResult_t result, const char* call) { expectRefused(result, member.comm, owner, call); };
  moeResult_t error = moeSuccess;
  moeCommInfo_t info = MOE_COMM_INFO_INITIALIZER;
  moeCounts_t counts = MOE_COUNTS_INITIALIZER;
  moeDispatchArgs_t dispatch = MOE_DISPATCH_ARGS_INITIALIZER;
  moeCombineArgs_t combine = MOE_COMBINE_ARGS_INITIALIZER;
  moeHandleConfig_t shape = MOE_HANDLE_CONFIG_INITIALIZER;
  moeHandle_t handle = nullptr;
  void* memory = nullptr;
  refused(member.route(), "moeRoute");
  refused(moeDispatch(member.handle, &dispatch, nullptr), "moeDispatch");
  refused(moeCombine(member.handle, &combine, nullptr), "moeCombine");
  refused(moeComplete(member.handle, nullptr), "moeComplete");
  refused(moeHandleGetCounts(member.handle, &counts), "moeHandleGetCounts");
  refused(moeHandleCreate(&handle, member.comm, &shape), "moeHandleCreate");
  refused(moeHandleDestroy(member.handle), "moeHandleDestroy");
  refused(moeMemAlloc(member.comm, 64, &memory), "moeMemAlloc");
  refused(moeMemPoolUse(member.comm), "moeMemPoolUse");
  refused(moeCommGetInfo(member.comm, &info), "moeCommGetInfo");
  refused(moeCommGetAsyncError(member.comm, &error), "moeCommGetAsyncError");
  refused(moeCommAbort(member.comm), "moeCommAbort");
  member.destroy();
}

TEST(CommFork, TheChildIsRefusedEveryCallAndItsDestroyLeavesTheGroupAlone) {
  Children children(2, [](int index, const moeUniqueId_t& id, const auto&) {
    Member member(index, 2, id);
    member.routeWell();
    const pid_t self = ::getpid();
    const int status = inFork(20, [&] { tryEverything(member, self); });
    if (status != 0) throw Error(moeInternalError, "the forked process ended with " + std::to_string(status) + "\n");
    member.routeWell();
    member.destroy();
  });
  children.start(bootstrap::createUniqueId(20s, "lo"));
  for (int i = 0; i < 2; ++i) EXPECT_EQ(children.status(i), 0);
}

// Rank 1 dies while its child holds its sockets open.
TEST(CommFork, TheDeathOfAParentIsNoticedThoughItsChildLives) {
  int stay[2];
  ASSERT_EQ(::pipe(stay), 0);
  Children children(3, [&](int index, const moeUniqueId_t& id, const auto& say) {
    ::close(stay[1]);
    Member member(index, 3, id);
    member.routeWell();
    if (index == 1 && ::fork() == 0) {
      ::alarm(120);
      char word;
      (void)!::read(stay[0], &word, 1);  // until the test is over
      ::_exit(0);
    }
    say();
    if (index == 1) std::this_thread::sleep_for(120s);
    moeResult_t error = moeSuccess;
    for (const auto start = Clock::now(); error == moeSuccess && secondsSince(start) < 20;
         std::this_thread::sleep_for(2ms))
      moeCommGetAsyncError(member.comm, &error);
    const std::string sentence = moeGetLastError(member.comm);
    const bool named = sentence.starts_with("rank 1 (") && sentence.find(") has died: ") != std::string::npos &&
                       sentence.find("its process has ended") != std::string::npos;
    if (error != moeRemoteError || !named) throw Error(moeInternalError, "not noticed: " + sentence + "\n");
    moeCommDestroy(member.comm);
  });
  children.start(bootstrap::createUniqueId(20s, "lo"));
  for (int i = 0; i < 3; ++i) children.awaitWord(i);
  children.kill(1);
  EXPECT_EQ(children.status(1), -SIGKILL);
  EXPECT_EQ(children.status(0), 0);
  EXPECT_EQ(children.status(2), 0);
  ::close(stay[0]), ::close(stay[1]);
}

// A goodbye may be heard after the process that said it has ended.
TEST(CommFork, AProcessThatLeavesAndEndsIsNoDeath) {
  constexpr int kRanks = 6;
  Children children(kRanks, [](int index, const moeUniqueId_t& id, const auto&) {
    Member member(index, kRanks, id);
    member.routeWell();
    if (index % 2 == 1) return member.destroy();  // and its process ends
    std::this_thread::sleep_for(1500ms);
    moeResult_t error = moeSuccess;
    moeCommGetAsyncError(member.comm, &error);
    Member::check(error, moeGetLastError(member.comm));
    member.destroy();
  });
  children.start(bootstrap::createUniqueId(20s, "lo"));
  for (int i = 0; i < kRanks; ++i) EXPECT_EQ(children.status(i), 0);
}

}  // namespace
}  // namespace moe::test
