#include "api/rank_loop.h"

#include <fmt/format.h>

#include <chrono>
#include <set>

#include "support/reference/reference.h"

namespace moe::test {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kTokens = 16, kTopk = 2, kExperts = 8, kHidden = 1024, kRowBytes = 2 * kHidden;
// Steps per check on GPUs, where kernels are queued several steps ahead. The host backend's steps are over when their
// calls return.
constexpr int kStepsPerCheckOnGpus = 8;

int expertOf(int token, int k) {
  return (token + 3 * k) % kExperts;
}

// Small whole numbers: their sums are exact in bf16 in any order.
int elementOf(int rank, int token, int round, int element) {
  return (31 * rank + 7 * token + 3 * round + element) % 61;
}

std::size_t bytesOf(int rows) {
  return std::size_t{kRowBytes} * static_cast<std::size_t>(rows);
}

// The experts return their input, so a token's sum is its row times the number of ranks that it went to.
class Loop {
 public:
  Loop(const LoopSettings& settings, moeComm_t comm, Arena& arena);
  ~Loop() { moeHandleDestroy(handle_); }
  Loop(const Loop&) = delete;
  Loop& operator=(const Loop&) = delete;

  moeResult_t made() const { return made_; }
  void writeRows(int round);
  moeResult_t step(moeComm_t comm, int round);
  long countWrong(int round);

 private:
  const LoopSettings& settings_;
  Arena& arena_;
  moeHandle_t handle_ = nullptr;
  moeResult_t made_;
  const std::int32_t* ids_;
  std::uint8_t *rows_, *out_, *sums_;
};

Loop::Loop(const LoopSettings& settings, moeComm_t comm, Arena& arena) : settings_(settings), arena_(arena) {
  moeHandleConfig_t shape = MOE_HANDLE_CONFIG_INITIALIZER;
  shape.experts = kExperts;
  shape.topk = kTopk;
  shape.mode = settings.mode;
  shape.tokensMax = kTokens;
  settings.inLibrary(true);
  made_ = moeHandleCreate(&handle_, comm, &shape);
  settings.inLibrary(false);
  std::vector<std::int32_t> ids;
  for (int token = 0; token < kTokens; ++token) {
    for (int k = 0; k < kTopk; ++k) ids.push_back(expertOf(token, k));
  }
  ids_ = arena.put<std::int32_t>(ids);
  const auto take = [&](int rows) { return static_cast<std::uint8_t*>(arena.take(bytesOf(rows))); };
  rows_ = take(kTokens);
  out_ = take(kTokens * settings.nranks);
  sums_ = take(kTokens);
}

void Loop::writeRows(int round) {
  std::vector<std::uint8_t> rows(bytesOf(kTokens));
  for (int token = 0; token < kTokens; ++token) {
    for (int i = 0; i < kHidden; ++i) {
      const auto value = static_cast<float>(elementOf(settings_.rank, token, round, i));
      encodeElement(moeRowBf16, value, rows.data() + bytesOf(token), i);
    }
  }
  arena_.upload(rows_, rows.data(), rows.size());
}

// Every second step routes and dispatches by one call.
moeResult_t Loop::step(moeComm_t comm, int round) {
  moeDispatchArgs_t dispatch = MOE_DISPATCH_ARGS_INITIALIZER;
  dispatch.rows = rows_;
  dispatch.rowType = moeRowBf16;
  dispatch.hidden = kHidden;
  dispatch.outRows = out_;
  dispatch.outRowsMax = std::int64_t{kTokens} * settings_.nranks;
  moeCombineArgs_t combine = MOE_COMBINE_ARGS_INITIALIZER;
  combine.rows = out_;
  combine.rowType = moeRowBf16;
  combine.hidden = kHidden;
  combine.out = sums_;
  settings_.inLibrary(true);
  moeResult_t result = moeSuccess;
  if (round % 2 == 0) {
    result = moeRoute(handle_, ids_, nullptr, kTokens, arena_.stream());
    if (result == moeSuccess) result = moeDispatch(handle_, &dispatch, arena_.stream());
  } else {
    result = moeRouteDispatch(handle_, ids_, nullptr, kTokens, &dispatch, arena_.stream());
  }
  if (result == moeSuccess) result = moeCombine(handle_, &combine, arena_.stream());
  if (result == moeSuccess) moeCommGetAsyncError(comm, &result);
  settings_.inLibrary(false);
  return result;
}

long Loop::countWrong(int round) {
  const RouteConfig route{.nranks = settings_.nranks, .experts = kExperts, .topk = kTopk};
  const std::vector<std::uint8_t> sums = arena_.get(sums_, bytesOf(kTokens));
  long wrong = 0;
  for (int token = 0; token < kTokens; ++token) {
    std::set<int> ranks;
    for (int k = 0; k < kTopk; ++k) ranks.insert(rankOfExpert(route, expertOf(token, k)));
    for (int i = 0; i < kHidden; ++i) {
      const int expected = elementOf(settings_.rank, token, round, i) * static_cast<int>(ranks.size());
      const float sum = decodeElement(moeRowBf16, sums.data() + bytesOf(token), i);
      wrong += sum != static_cast<float>(expected);
    }
  }
  return wrong;
}

double secondsSince(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

LoopEnd loopUntilFailure(const LoopSettings& settings, moeComm_t comm, Arena& arena) {
  const int every = settings.cuda ? kStepsPerCheckOnGpus : 1;
  LoopEnd end;
  Loop loop(settings, comm, arena);
  end.result = loop.made();
  Clock::time_point checked = Clock::now();
  for (int i = 0; end.result == moeSuccess && i < settings.stepsMax; ++i) {
    if (i % every == 0) loop.writeRows(i);
    settings.beforeStep(i);
    end.result = settings.betweenSteps(comm, i);
    if (end.result == moeSuccess) end.result = loop.step(comm, i);
    if (end.result != moeSuccess) break;
    ++end.steps;
    if ((i + 1) % every != 0) continue;
    arena.synchronize();
    moeCommGetAsyncError(comm, &end.result);
    if (end.result != moeSuccess) break;
    end.wrong += loop.countWrong(i + 1 - every);
    checked = Clock::now();
  }
  end.seconds = secondsSince(checked);
  settings.afterSteps(comm);
  return end;
}

// The results that such a loop can end with.
std::string nameOf(moeResult_t result) {
  switch (result) {
    case moeSuccess:
      return "moeSuccess";
    case moeRemoteError:
      return "moeRemoteError";
    case moeTimeout:
      return "moeTimeout";
    default:
      return "result " + std::to_string(result);
  }
}

}  // namespace

RankEnd joinAndLoop(const LoopSettings& settings, const moeConfig_t& config, Arena& arena) {
  Held::settle();
  RankEnd end;
  Clock::time_point begin = Clock::now();
  moeComm_t comm = nullptr;
  settings.inLibrary(true);
  end.loop.result = moeCommInitFromEnv(&comm, &config);
  settings.inLibrary(false);
  end.loop.seconds = secondsSince(begin);
  if (end.loop.result != moeSuccess) {
    end.sentence = moeGetLastError(nullptr);
    // The rendezvous is a thread with a listener and an eventfd. It reports the failure to late ranks for ten seconds.
    if (settings.rank == 0) {
      end.before.descriptors += 2;
      ++end.before.threads;
    }
  } else {
    end.loop = loopUntilFailure(settings, comm, arena);
    if (end.loop.result != moeSuccess) end.sentence = moeGetLastError(comm);
  }
  begin = Clock::now();
  settings.inLibrary(true);
  end.left = moeCommDestroy(comm) == moeSuccess;
  settings.inLibrary(false);
  end.leaveSeconds = secondsSince(begin);
  return end;
}

std::string RankEnd::text() const {
  return fmt::format("after {} steps, {} wrong, then {:.2f} s: {}: {} (left in {:.2f} s)", loop.steps, loop.wrong,
                     loop.seconds, nameOf(loop.result), sentence, leaveSeconds);
}

bool namesRank(const std::string& sentence, int rank) {
  const std::string number = std::to_string(rank);
  for (const std::string& name : {"rank " + number, "ranks " + number}) {
    for (std::size_t at = 0; (at = sentence.find(name, at)) != std::string::npos; at += name.size()) {
      const std::size_t end = at + name.size();
      if (end == sentence.size() || sentence[end] < '0' || sentence[end] > '9') return true;
    }
  }
  return false;
}

bool namesAnotherRank(const std::string& sentence, int rank, int nranks) {
  for (int other = 0; other < nranks; ++other) {
    if (other != rank && namesRank(sentence, other)) return true;
  }
  return false;
}

}  // namespace moe::test
