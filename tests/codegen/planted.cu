// A kernel like those of the library, with the defect that PLANT names, if any. check_kernels_test.py demands that the
// checker finds each.
#include <cstdint>

#define GOOD 0
#define STACK 1         // an array is indexed at run time
#define SPILL 2         // more live values than registers
#define NARROW_STORE 3  // rows are stored in words of 4 bytes
#define NARROW_LOAD 4   // rows are loaded in words of 4 bytes
#define WEAK_FLAG 5     // the flag is stored at GPU scope
#define NO_RELEASE 6    // the flag is stored without a fence
#define NO_ACQUIRE 7    // the flag is polled without an acquire
#define MORE_REGISTERS 8
#define NO_BULK_STORE 9  // lanes store the staged rows
#define FEWER_FENCES 10  // one of two releases is missing
#define LONGER_POST 11   // a put takes more instructions

struct alignas(16) Quad {
  std::uint32_t x, y, z, w;
};

namespace {

__device__ void publish(std::uint64_t* flag, std::uint64_t word) {
#if PLANT == WEAK_FLAG
  asm volatile("st.release.gpu.global.u64 [%0], %1;" ::"l"(flag), "l"(word) : "memory");
#elif PLANT == NO_RELEASE
  asm volatile("st.relaxed.sys.global.u64 [%0], %1;" ::"l"(flag), "l"(word) : "memory");
#else
  asm volatile("st.release.sys.global.u64 [%0], %1;" ::"l"(flag), "l"(word) : "memory");
#endif
}

__device__ std::uint64_t look(const std::uint64_t* flag) {
  std::uint64_t word;
#if PLANT == NO_ACQUIRE
  asm volatile("ld.relaxed.sys.global.u64 %0, [%1];" : "=l"(word) : "l"(flag) : "memory");
#else
  asm volatile("ld.acquire.sys.global.u64 %0, [%1];" : "=l"(word) : "l"(flag) : "memory");
#endif
  return word;
}

__device__ void storeQuad(Quad* to, Quad piece) {
#if PLANT == NARROW_STORE
  auto* words = reinterpret_cast<std::uint32_t*>(to);
  words[0] = piece.x;
  words[1] = piece.y;
  words[2] = piece.z;
  words[3] = piece.w;
#else
  *to = piece;
#endif
}

__device__ Quad loadQuad(const Quad* from) {
#if PLANT == NARROW_LOAD
  const auto* words = reinterpret_cast<const std::uint32_t*>(from);
  return {words[0], words[1], words[2], words[3]};
#else
  return *from;
#endif
}

#if PLANT == SPILL
constexpr int kBatch = 24;
__global__ void __launch_bounds__(1024, 2)
#else
constexpr int kBatch = PLANT == MORE_REGISTERS ? 16 : 4;
__global__ void __launch_bounds__(256, 1)
#endif
    copyRows(const Quad* from, Quad* to, int quads, std::uint64_t* flags, std::uint64_t epoch) {
  while (look(flags) < epoch) {
  }
#if PLANT == STACK
  int order[32];
  for (int i = 0; i < 32; ++i) order[i] = quads >> i;
  to += order[epoch % 32];
#endif
  for (int begin = 0; begin < quads; begin += 32 * kBatch) {
    Quad piece[kBatch];
#pragma unroll
    for (int j = 0; j < kBatch; ++j) piece[j] = loadQuad(from + begin + 32 * j + threadIdx.x);
    for (int sink = 0; sink < 3; ++sink) {
#pragma unroll
      for (int j = 0; j < kBatch; ++j) storeQuad(to + sink * quads + begin + 32 * j + threadIdx.x, piece[j]);
    }
  }
  __syncwarp();
#if PLANT != FEWER_FENCES
  publish(flags + 1, epoch);
#endif
  __syncwarp();
  publish(flags + 2, epoch);
}

}  // namespace

// Named like the namespace of device/policy/cuda/puts.h, because the checker knows it by its name.
namespace cuda_put_queue {

__device__ __noinline__ bool post(unsigned long long* counters, Quad* queue, Quad put, bool rings) {
  std::uint64_t index;
  asm volatile("atom.relaxed.sys.global.add.u64 %0, [%1], 32;" : "=l"(index) : "l"(counters) : "memory");
  if (index + 32 > look(reinterpret_cast<std::uint64_t*>(counters + 1))) return false;
#if PLANT == LONGER_POST
  put.w = __brev(put.w * 7 + put.x);
#endif
  asm volatile("st.relaxed.sys.global.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(queue + index + threadIdx.x), "r"(put.x),
               "r"(put.y), "r"(put.z), "r"(put.w)
               : "memory");
  publish(reinterpret_cast<std::uint64_t*>(counters + 2), index + 32);
  if (rings) asm volatile("st.mmio.relaxed.sys.global.u64 [%0], %1;" ::"l"(counters + 3), "l"(index) : "memory");
  return true;
}

}  // namespace cuda_put_queue

namespace {

__global__ void putRows(unsigned long long* counters, Quad* queue, const Quad* puts, int count) {
  for (int i = 0; i < count; i += 32) {
    if (!cuda_put_queue::post(counters, queue, puts[i], i + 32 >= count)) return;
  }
}

__global__ void bulkCopy(const Quad* from, Quad* to, std::uint32_t bytes) {
#if __CUDA_ARCH__ >= 900
  extern __shared__ Quad stage[];
  __shared__ std::uint64_t full;
  const auto at = static_cast<std::uint32_t>(__cvta_generic_to_shared(stage));
  const auto barrier = static_cast<std::uint32_t>(__cvta_generic_to_shared(&full));
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(at),
               "l"(from), "r"(bytes), "r"(barrier)
               : "memory");
#if PLANT == NO_BULK_STORE
  to[threadIdx.x] = stage[threadIdx.x];
#else
  asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(to), "r"(at), "r"(bytes) : "memory");
#endif
#endif
}

}  // namespace

void launch(const Quad* from, Quad* to, int quads, std::uint64_t* flags) {
  copyRows<<<1, 32>>>(from, to, quads, flags, 1);
  bulkCopy<<<1, 32>>>(from, to, 16);
  putRows<<<1, 32>>>(reinterpret_cast<unsigned long long*>(flags), to, from, quads);
}
