// The queues of device/queue/mlx5 on a GPU, which encodes WQEs and posts rows. nvcc compiles this for the GPU, and the
// host compiler compiles it too.
#pragma once

#include <vector>

#include "device/queue/mlx5/send_queue.h"
#include "fake_mlx5/other_wqes.h"

namespace moe::test {

// ---- Encoding

struct WqeFields {
  mlx5::WqeHead head;
  mlx5::RemoteAddress remote;
  mlx5::LocalRange local;
  std::uint64_t value, other;
  std::uint32_t immediate;
};

struct EncodedWqes {
  mlx5::Wqe<3> write, writeImm, read;
  mlx5::Wqe<4> fetchAdd, compareSwap;
  mlx5::Wqe<3> flag;
  mlx5::Wqe<6> words;
};

MOE_LANES EncodedWqes encode(const WqeFields& f) {
  mlx5::InlineWords<15> words;
  for (int i = 0; i < 15; ++i) words.word[i] = f.immediate + static_cast<std::uint32_t>(i);
  return {mlx5::rdmaWrite(f.head, f.remote, f.local),
          mlx5::rdmaWriteImm(f.head, f.remote, f.local, f.immediate),
          mlx5::rdmaRead(f.head, f.remote, f.local),
          mlx5::fetchAdd(f.head, f.remote, f.value, f.local.address, f.local.lkey),
          mlx5::compareSwap(f.head, f.remote, f.value, f.other, f.local.address, f.local.lkey),
          mlx5::inlineWrite(f.head, f.remote, mlx5::inlineFlag(f.value)),
          mlx5::inlineWrite(f.head, f.remote, words)};
}

// The GPU's encodings, in order. Throws std::runtime_error with CUDA's text.
std::vector<EncodedWqes> encodedByGpu(const std::vector<WqeFields>& fields);

// ---- Posting: pairs of blocks. One block of a pair sends rows to the other, one at a time

inline constexpr int kRowWords = 256;

struct alignas(64) RowLane {
  std::uint64_t source[kRowWords];   // written by the sending block
  std::uint64_t arrived[kRowWords];  // this and the flag are written by the adapter
  std::uint64_t flag;
  std::uint64_t acknowledged;  // written by the receiving block: the last row that it has read
};

struct RowExchange {
  mlx5::SendQueue queue;  // shared by all senders
  RowLane* lanes;         // one per pair
  std::uint32_t key;      // for the memory of the lanes
  int pairs;
  std::uint64_t rounds;
  const WaitOrders* orders;
  std::uint64_t* wrongWords;
  std::uint64_t* failures;  // waits that did not get what they waited for
};

// Returns when all blocks have ended. The GPU must reach all memory at its host address.
void exchangeRows(RowExchange exchange);

}  // namespace moe::test
