// device/queue/mlx5 on a GPU. WQEs have the same bytes as on the CPU, where tests compare them with libmlx5's. The
// adapter in software executes from host memory what a kernel posts.
#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <new>

#include "fake_mlx5/endpoint.h"
#include "gpu/mlx5_probe.h"
#include "support/base/rng.h"

namespace moe::test {
namespace {

class Mlx5OnGpu : public ::testing::Test {
 protected:
  void SetUp() override {
    int count = 0;
    if (cudaGetDeviceCount(&count) != cudaSuccess || count == 0) GTEST_SKIP() << "no GPU here";
  }
};

template <class Object>
struct DestroyPinned {
  void operator()(Object* object) const {
    object->~Object();
    cudaFreeHost(object);
  }
};
template <class Object>
using Pinned = std::unique_ptr<Object, DestroyPinned<Object>>;

// Makes an object in host memory that the GPU reaches at the same address.
template <class Object, class... Arguments>
Pinned<Object> makePinned(Arguments&&... arguments) {
  void* memory = nullptr;
  if (cudaHostAlloc(&memory, sizeof(Object), cudaHostAllocDefault) != cudaSuccess) throw std::bad_alloc();
  return Pinned<Object>(new (memory) Object(std::forward<Arguments>(arguments)...));
}

TEST_F(Mlx5OnGpu, WqesHaveTheBytesThatTheCpuGivesThem) {
  Rng rng(1);
  std::vector<WqeFields> fields(10'000);
  for (WqeFields& f : fields) {
    f.head = {static_cast<std::uint32_t>(rng.next() & 0xffffff), static_cast<std::uint16_t>(rng.next()),
              mlx5::kSignalled};
    f.remote = {rng.next(), static_cast<std::uint32_t>(rng.next())};
    f.local = {rng.next(), static_cast<std::uint32_t>(rng.next()), static_cast<std::uint32_t>(rng.next() >> 33)};
    f.value = rng.next();
    f.other = rng.next();
    f.immediate = static_cast<std::uint32_t>(rng.next());
  }
  const std::vector<EncodedWqes> onGpu = encodedByGpu(fields);
  for (std::size_t i = 0; i < fields.size(); ++i) {
    const EncodedWqes onCpu = encode(fields[i]);
    ASSERT_EQ(std::memcmp(&onCpu, &onGpu[i], sizeof(onCpu)), 0) << "WQEs " << i;
  }
}

constexpr int kPairs = 6;
constexpr std::uint64_t kRounds = 3000, kBegin = 65536 - 1000;

struct Shared {
  RowLane lanes[kPairs] = {};
  WaitOrders orders{0, 10'000'000'000};
  std::uint64_t wrongWords = 0, failures = 0;
};

// Six warps share a ring with room for three of their batches. The indices go past 2^16.
TEST_F(Mlx5OnGpu, RowsThatKernelsPostArriveBeforeTheirFlags) {
  SoftAdapter adapter(2);
  const auto shared = makePinned<Shared>();
  const auto sender = makePinned<Endpoint>(adapter, 0x51u, 16u, 16u, kBegin);
  Endpoint receiver(adapter, 0x52, 4);
  adapter.connect(0x51, 0x52);
  const std::uint32_t key = adapter.registerMemory(shared->lanes, sizeof(shared->lanes), kRemoteWrite);
  {
    const Repeater engine([&] { adapter.step(); });
    const Repeater owner([&] {
      if (!sender->drain()) HostQueueMemory().publish(&shared->orders.abort, std::uint64_t{1});
    });
    exchangeRows({sender->queue(), shared->lanes, key, kPairs, kRounds, &shared->orders, &shared->wrongWords,
                  &shared->failures});
    const HostQueueMemory memory;
    waitUntil(memory, patience<1000>(),
              [&] { return memory.load(sender->queue().completed) == kBegin + 5 * kPairs * kRounds; });
  }
  EXPECT_EQ(shared->wrongWords, 0u);
  EXPECT_EQ(shared->failures, 0u);
  EXPECT_EQ(mlx5::syndromeText(sender->failure.syndrome), mlx5::syndromeText(mlx5::Syndrome::none));
  EXPECT_EQ(*sender->queue().completed, kBegin + 5 * kPairs * kRounds);
  EXPECT_TRUE(adapter.violations().empty()) << adapter.violations().front();
}

}  // namespace
}  // namespace moe::test
