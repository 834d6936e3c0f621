// One rank of a small group in which calls fail (injector.h). It joins, makes verified steps and leaves. Whatever
// fails, the rank must end in time, either with right sums or with a failure that has a sentence, and must hold no more
// than before. It prints "good: ..." and exits with 0, or prints "BAD: ..." and exits with 1. sweep.py starts it.
#include <cstdio>
#include <cstdlib>

#include "api/rank_loop.h"
#include "faults/injector.h"

namespace moe::test {
namespace {

constexpr int kSteps = 6, kTimeoutMs = 2000;

void arm(bool armed) {
  if (moecommFaultsArm != nullptr) moecommFaultsArm(armed);
}

// True if the sentence names the rank in which calls fail. While ranks join, rank 0's process may also end when another
// rank fails. A rank that comes later finds no rendezvous, and so no reason.
bool namesTheCulprit(const RankEnd& end) {
  const auto says = [&](const char* words) { return end.sentence.find(words) != std::string::npos; };
  const std::string culprit = std::getenv("FAULT_VICTIM");  // any: where many calls fail, any rank may be named
  return culprit == "any" || namesRank(end.sentence, std::atoi(culprit.c_str())) ||
         says("the process that serves the unique id") || (end.loop.steps == 0 && says("no rendezvous at"));
}

// The error of this end, or an empty string.
std::string faultOf(const RankEnd& end, const LoopSettings& settings) {
  const bool victim = std::getenv("FAULT_CALL") != nullptr;
  if (end.loop.wrong != 0) return "wrong sums";
  if (!end.left) return "moeCommDestroy has failed";
  if (!end.tookLessThan(kTimeoutMs + kMarginMs)) return "it took too long";
  if (end.loop.result == moeSuccess) return end.loop.steps == settings.stepsMax ? "" : "too few steps";
  if (end.sentence.empty()) return "no sentence";
  if (!victim && !namesTheCulprit(end)) return "it names others";
  return holdsNoMoreThan(end.before) ? "" : "something is held that was not before";
}

int run() {
  const auto arena = makeHostArena();
  moeConfig_t config = testConfig(moeBackendHost);
  config.timeoutMs = kTimeoutMs;
  LoopSettings settings;
  settings.rank = std::atoi(std::getenv("MOECOMM_RANK"));
  settings.nranks = std::atoi(std::getenv("MOECOMM_NRANKS"));
  settings.mode = std::getenv("FAULT_LL") != nullptr ? moeModeLl : moeModeHt;
  settings.stepsMax = kSteps;
  settings.inLibrary = arm;
  RankEnd end = joinAndLoop(settings, config, *arena);
  // The rendezvous keeps connections for a while to ranks that neither join nor disconnect.
  if (settings.rank == 0 && end.loop.steps == 0) end.before.descriptors += static_cast<std::size_t>(settings.nranks);
  const std::string fault = faultOf(end, settings);
  const char* outcome = !fault.empty() ? fault.c_str() : end.loop.result == moeSuccess ? "success" : "failure";
  std::printf("%s: rank %d: %s: %s\n", fault.empty() ? "good" : "BAD", settings.rank, outcome, end.text().c_str());
  if (moecommFaultsPrint != nullptr) moecommFaultsPrint();
  std::fflush(stdout);
  return fault.empty() ? 0 : 1;
}

}  // namespace
}  // namespace moe::test

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  return moe::test::run();
}
