// The calls of a training or inference loop must not allocate. This test is a program of its own because it replaces
// operator new.
#include <cstdlib>
#include <new>

#include "support/api/moe_step.h"

namespace {

thread_local bool counting = false;
thread_local int allocations = 0;

void* allocate(std::size_t bytes, std::size_t alignment) {
  if (counting) ++allocations;
  void* memory = std::aligned_alloc(alignment, (bytes + alignment - 1) / alignment * alignment);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}

}  // namespace

void* operator new(std::size_t bytes) {
  return allocate(bytes, alignof(std::max_align_t));
}
void* operator new(std::size_t bytes, std::align_val_t alignment) {
  return allocate(bytes, static_cast<std::size_t>(alignment));
}
void operator delete(void* memory) noexcept {
  std::free(memory);
}
void operator delete(void* memory, std::size_t) noexcept {
  std::free(memory);
}
void operator delete(void* memory, std::align_val_t) noexcept {
  std::free(memory);
}
void operator delete(void* memory, std::size_t, std::align_val_t) noexcept {
  std::free(memory);
}

namespace moe::test {
namespace {

template <class Call>
int allocationsOf(Call call) {
  allocations = 0;
  counting = true;
  call();
  counting = false;
  return allocations;
}

class Allocations : public OnBackend {};

void runStep(RankContext& context, MoeStep& step, int flags, const char* name) {
  SCOPED_TRACE(name);
  const auto completed = [&] { return flags != 0 ? allocationsOf([&] { step.complete(); }) : 0; };
  step.prepare(0);
  EXPECT_EQ(allocationsOf([&] { step.route(); }), 0) << "moeRoute";
  EXPECT_EQ(allocationsOf([&] { step.dispatch(flags); }), 0) << "moeDispatch";
  EXPECT_EQ(completed(), 0) << "moeComplete of a dispatch";
  step.checkDispatch();
  step.runExperts();
  EXPECT_EQ(allocationsOf([&] { step.combine(flags); }), 0) << "moeCombine";
  EXPECT_EQ(completed(), 0) << "moeComplete of a combine";
  step.checkCombine();
  EXPECT_EQ(allocationsOf([&] {
              moeCounts_t counts = MOE_COUNTS_INITIALIZER;
              MOE_EXPECT_OK(moeHandleGetCounts(step.handle(), &counts), context);
            }),
            0)
      << "moeHandleGetCounts";
}

TEST_P(Allocations, AreNotMadeByTheCallsOfALoop) {
  world(2, config(), [&](RankContext& context) {
    for (const int mode : {moeModeHt, moeModeLl}) {
      for (const int layout : {moeLayoutFlat, moeLayoutExpertMajor, moeLayoutExpertMajorPadded, moeLayoutRankMajor}) {
        for (const bool window : {true, false}) {
          StepCase c;
          c.mode = mode;
          c.layout = layout;
          c.window = window;
          MoeStep step(context, c);
          context.meet();
          runStep(context, step, 0, "at once");
          runStep(context, step, moeSendOnly, "in two calls");
          context.meet();
        }
      }
    }
  });
}

TEST_P(Allocations, AreCounted) {
  EXPECT_EQ(allocationsOf([] { delete new int; }), 1);
}

INSTANTIATE_TEST_SUITE_P(Backends, Allocations, ::testing::Values(int{moeBackendHost}), backendName);

}  // namespace
}  // namespace moe::test
