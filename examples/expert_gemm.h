// A grouped GEMM that says which of its rows are made: behind each tile it adds 1 to the word of the tile's 128 rows.
// It takes the tensor cores as every GPU from compute capability 8.0 on has them, with copies that run ahead; a tuned
// GEMM for the GPU at hand is faster.
#pragma once

#include <cuda_pipeline.h>

#include <cstdint>

#include <cuda_bf16.h>

namespace expert_gemm {

constexpr int kTileRows = 128, kTileColumns = 256, kDepth = 32, kStages = 4, kThreads = 256;
constexpr int kWarpRows = 64, kWarpColumns = 64;  // of a tile, by one warp
constexpr int kStep = 16;                         // rows, columns and depth of a tensor core's instruction
constexpr int kPiece = 8;                         // elements that one thread copies at once
constexpr int kPad = 8;                           // elements behind each row in shared memory, against bank conflicts

// made[r] = rows[r] * weights[expert of r], where the expert's rows are those from offsets[e] to offsets[e + 1].
struct Problem {
  const __nv_bfloat16* rows;     // [rows][hidden]; the first `inner` columns count
  const __nv_bfloat16* weights;  // [experts][inner][hidden]
  __nv_bfloat16* made;           // [rows][hidden]
  const std::int32_t* offsets;   // [experts + 1], multiples of kTileRows
  std::uint32_t* ready;          // [rows / kTileRows]
  int experts, hidden, inner;    // hidden: a multiple of kTileColumns; inner: of kDepth, at most hidden
};

struct Stage {
  __nv_bfloat16 rows[kTileRows][kDepth + kPad];
  __nv_bfloat16 weights[kDepth][kTileColumns + kPad];
};
constexpr int kSharedBytes = kStages * static_cast<int>(sizeof(Stage));

// A tile's operands, from where its rows and columns begin.
struct Operands {
  const __nv_bfloat16 *rows, *weights;
  int hidden;

  // What this thread copies of the part from `depth` on.
  __device__ void fetch(Stage* to, int depth) const {
    constexpr int kPerRow = kDepth / kPiece, kPerWeights = kTileColumns / kPiece;
    const int thread = static_cast<int>(threadIdx.x);
    const int row = thread / kPerRow, column = thread % kPerRow * kPiece;
#pragma unroll
    for (int below = 0; below < kTileRows; below += kThreads / kPerRow) {
      copyPiece(&to->rows[below + row][column], rows + std::int64_t{below + row} * hidden + depth + column);
    }
    const int deep = thread / kPerWeights, across = thread % kPerWeights * kPiece;
#pragma unroll
    for (int below = 0; below < kDepth; below += kThreads / kPerWeights) {
      copyPiece(&to->weights[below + deep][across], weights + std::int64_t{depth + below + deep} * hidden + across);
    }
  }

 private:
  static __device__ void copyPiece(__nv_bfloat16* to, const __nv_bfloat16* from) {
    __pipeline_memcpy_async(to, from, kPiece * sizeof(__nv_bfloat16));
  }
};

// Four matrices of 8 x 8 elements, whose rows the lanes name. `kTransposed`: as their columns lie.
template <bool kTransposed>
__device__ void loadMatrices(std::uint32_t (&to)[4], const __nv_bfloat16* row) {
  const auto at = static_cast<std::uint32_t>(__cvta_generic_to_shared(row));
  if constexpr (kTransposed) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                 : "r"(at));
  } else {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                 : "r"(at));
  }
}
// 16 rows and 8 columns more of a sum.
__device__ inline void multiply(float (&sum)[4], const std::uint32_t (&rows)[4], std::uint32_t low,
                                std::uint32_t high) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
      "{%0, %1, %2, %3};"
      : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
      : "r"(rows[0]), "r"(rows[1]), "r"(rows[2]), "r"(rows[3]), "r"(low), "r"(high));
}

// One warp's part of a tile's sums.
class Sums {
 public:
  __device__ Sums(int warp, int lane)
      : row_(warp / (kTileColumns / kWarpColumns) * kWarpRows),
        column_(warp % (kTileColumns / kWarpColumns) * kWarpColumns),
        lane_(lane) {}

  __device__ void add(const Stage& stage) {
    const int own = lane_ % kStep, half = lane_ / kStep * (kStep / 2);
#pragma unroll
    for (int depth = 0; depth < kDepth; depth += kStep) {
      std::uint32_t rows[kDown][4], weights[kAcross][4];
#pragma unroll
      for (int i = 0; i < kDown; ++i) loadMatrices<false>(rows[i], &stage.rows[row_ + i * kStep + own][depth + half]);
#pragma unroll
      for (int j = 0; j < kAcross; ++j) {
        loadMatrices<true>(weights[j], &stage.weights[depth + own][column_ + j * kStep + half]);
      }
#pragma unroll
      for (int i = 0; i < kDown; ++i) {
#pragma unroll
        for (int j = 0; j < kAcross; ++j) {
          multiply(sums_[i][j][0], rows[i], weights[j][0], weights[j][1]);
          multiply(sums_[i][j][1], rows[i], weights[j][2], weights[j][3]);
        }
      }
    }
  }
  // To `tile`, whose rows are `hidden` elements apart.
  __device__ void store(__nv_bfloat16* tile, int hidden) const {
#pragma unroll
    for (int i = 0; i < kDown; ++i) {
#pragma unroll
      for (int j = 0; j < 2 * kAcross; ++j) {
        const float(&sum)[4] = sums_[i][j / 2][j % 2];
        const int row = row_ + i * kStep + lane_ / 4, column = column_ + j * (kStep / 2) + lane_ % 4 * 2;
        auto* to = tile + std::int64_t{row} * hidden + column;
        *reinterpret_cast<__nv_bfloat162*>(to) = __floats2bfloat162_rn(sum[0], sum[1]);
        *reinterpret_cast<__nv_bfloat162*>(to + std::int64_t{8} * hidden) = __floats2bfloat162_rn(sum[2], sum[3]);
      }
    }
  }

 private:
  static constexpr int kDown = kWarpRows / kStep, kAcross = kWarpColumns / kStep;
  float sums_[kDown][kAcross][2][4] = {};
  int row_, column_, lane_;
};

// Thread blocks take tiles in turn, those of the same rows one behind the other.
static __global__ void __launch_bounds__(kThreads, 1) makeRows(const Problem p) {
  extern __shared__ __align__(128) unsigned char shared[];
  auto* stages = reinterpret_cast<Stage*>(shared);
  const int across = p.hidden / kTileColumns, tiles = p.offsets[p.experts] / kTileRows * across;
  for (int tile = static_cast<int>(blockIdx.x); tile < tiles; tile += static_cast<int>(gridDim.x)) {
    const int block = tile / across, row = block * kTileRows, column = tile % across * kTileColumns;
    int expert = 0;
    while (expert + 1 < p.experts && p.offsets[expert + 1] <= row) ++expert;
    const Operands operands{p.rows + std::int64_t{row} * p.hidden,
                            p.weights + std::int64_t{expert} * p.inner * p.hidden + column, p.hidden};
    const int steps = p.inner / kDepth;
    for (int step = 0; step < kStages - 1; ++step) {
      if (step < steps) operands.fetch(&stages[step], step * kDepth);
      __pipeline_commit();
    }
    Sums sums(static_cast<int>(threadIdx.x) / 32, static_cast<int>(threadIdx.x) % 32);
    for (int step = 0; step < steps; ++step) {
      __pipeline_wait_prior(kStages - 2);
      __syncthreads();  // the stage is there for all, and all have done with the one before
      const int next = step + kStages - 1;
      if (next < steps) operands.fetch(&stages[next % kStages], next * kDepth);
      __pipeline_commit();
      sums.add(stages[step % kStages]);
    }
    sums.store(p.made + std::int64_t{row} * p.hidden + column, p.hidden);
    __syncthreads();  // the whole tile is stored ...
    if (threadIdx.x == 0) {
      asm volatile("red.release.gpu.global.add.u32 [%0], 1;" ::"l"(p.ready + block) : "memory");  // ... before this
    }
  }
}

}  // namespace expert_gemm
