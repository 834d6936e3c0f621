#include "device/policy/cuda/flags.h"
#include "gpu/cuda_memory.h"
#include "gpu/mlx5_probe.h"

namespace moe::test {
namespace {

constexpr int kLanes = 32;

__global__ void encodeKernel(const WqeFields* fields, EncodedWqes* encoded, std::size_t count) {
  const std::size_t i = std::size_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (i < count) encoded[i] = encode(fields[i]);
}

__device__ WaitLimit limitOf(const RowExchange& exchange) {
  return {CudaQueueMemory().nanoseconds(), exchange.orders};
}

// Lane 0 waits until the word equals `value`. All lanes get the result.
__device__ bool waitFor(const RowExchange& exchange, const std::uint64_t* word, std::uint64_t value, int lane) {
  const CudaQueueMemory memory;
  bool came = true;
  if (lane == 0) {
    came = waitUntil(memory, limitOf(exchange), [&] { return memory.load(word) == value; });
    if (!came) memory.add(exchange.failures, 1);
  }
  __syncwarp();
  return __shfl_sync(~0u, came, 0);
}

// Each of four lanes writes a quarter of the row as a WQE of its own. A fifth lane writes the flag's WQE.
__device__ void writeBatch(const RowExchange& exchange, RowLane& row, std::uint64_t index, std::uint64_t round,
                           int lane) {
  constexpr std::uint32_t kPartBytes = sizeof(row.source) / 4;
  const CudaQueueMemory memory;
  const mlx5::SendQueue& queue = exchange.queue;
  const std::uint64_t own = index + static_cast<unsigned>(lane);
  if (lane < 4) {
    const std::uint64_t offset = std::uint64_t{kPartBytes} * static_cast<unsigned>(lane);
    mlx5::writeWqe(memory, queue, own,
                   mlx5::rdmaWrite(mlx5::headAt(queue, own, 0),
                                   {reinterpret_cast<std::uint64_t>(row.arrived) + offset, exchange.key},
                                   {reinterpret_cast<std::uint64_t>(row.source) + offset, exchange.key, kPartBytes}));
  } else if (lane == 4) {
    mlx5::writeWqe(
        memory, queue, own,
        mlx5::inlineWrite(mlx5::headAt(queue, own, mlx5::kSignalled),
                          {reinterpret_cast<std::uint64_t>(&row.flag), exchange.key}, mlx5::inlineFlag(round)));
  }
}

__device__ bool sendRow(const RowExchange& exchange, RowLane& row, std::uint64_t round, int lane) {
  constexpr std::uint32_t kSlots = 5;
  const CudaQueueMemory memory;
  const WaitLimit limit = limitOf(exchange);
  for (int i = lane; i < kRowWords; i += kLanes) row.source[i] = round;
  std::uint64_t index = 0;
  bool good = lane != 0 || mlx5::reserve(memory, exchange.queue, kSlots, limit, &index);
  index = __shfl_sync(~0u, index, 0);
  if (!__shfl_sync(~0u, good, 0)) return false;
  writeBatch(exchange, row, index, round, lane);
  __syncwarp();
  good = lane != 0 || (mlx5::publishSlots(memory, exchange.queue, index, kSlots, limit) &&
                       mlx5::ringUpTo(memory, exchange.queue, index + kSlots, limit));
  return __shfl_sync(~0u, good, 0);
}

__device__ void sendRows(const RowExchange& exchange, RowLane& row, int lane) {
  for (std::uint64_t round = 1; round <= exchange.rounds; ++round) {
    if (!waitFor(exchange, &row.acknowledged, round - 1, lane)) return;
    if (!sendRow(exchange, row, round, lane)) {
      if (lane == 0) CudaQueueMemory().add(exchange.failures, 1);
      return;
    }
  }
}

__device__ void receiveRows(const RowExchange& exchange, RowLane& row, int lane) {
  const CudaQueueMemory memory;
  for (std::uint64_t round = 1; round <= exchange.rounds; ++round) {
    if (!waitFor(exchange, &row.flag, round, lane)) return;
    for (int i = lane; i < kRowWords; i += kLanes) {
      if (row.arrived[i] != round) memory.add(exchange.wrongWords, 1);
    }
    __syncwarp();
    if (lane == 0) memory.publish(&row.acknowledged, round);
  }
}

__global__ void exchangeKernel(const RowExchange exchange) {
  const int pair = static_cast<int>(blockIdx.x) / 2, lane = static_cast<int>(threadIdx.x);
  if (blockIdx.x % 2 == 0) {
    sendRows(exchange, exchange.lanes[pair], lane);
  } else {
    receiveRows(exchange, exchange.lanes[pair], lane);
  }
}

}  // namespace

std::vector<EncodedWqes> encodedByGpu(const std::vector<WqeFields>& fields) {
  const std::size_t count = fields.size();
  const auto from = allocate<WqeFields>(count);
  const auto to = allocate<EncodedWqes>(count);
  check(cudaMemcpy(from.get(), fields.data(), count * sizeof(WqeFields), cudaMemcpyHostToDevice), "upload");
  encodeKernel<<<static_cast<unsigned>((count + 255) / 256), 256>>>(from.get(), to.get(), count);
  check(cudaGetLastError(), "encodeKernel");
  std::vector<EncodedWqes> encoded(count);
  check(cudaMemcpy(encoded.data(), to.get(), count * sizeof(EncodedWqes), cudaMemcpyDeviceToHost), "encodeKernel");
  return encoded;
}

// The posters' counters are in GPU memory, because the host never uses them.
void exchangeRows(RowExchange exchange) {
  const auto counters = allocate<mlx5::SendCounters>(1);
  check(cudaMemcpy(counters.get(), exchange.queue.counters, sizeof(mlx5::SendCounters), cudaMemcpyHostToDevice),
        "upload");
  exchange.queue.counters = counters.get();
  exchangeKernel<<<static_cast<unsigned>(2 * exchange.pairs), kLanes>>>(exchange);
  check(cudaGetLastError(), "exchangeKernel");
  check(cudaDeviceSynchronize(), "exchangeKernel");
}

}  // namespace moe::test
