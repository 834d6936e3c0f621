// moecomm.hpp compiles where nvcc does. There is nothing to run.
#include <moecomm.hpp>

// It knows CUDA's element types before their headers come.
static_assert(moecomm::RowType<__half>::value == moeRowFp16 && moecomm::RowType<__nv_bfloat16>::value == moeRowBf16);

#include <cuda_bf16.h>
#include <cuda_fp16.h>

namespace moe::test {

// A step in device memory, on a stream.
void stepOnDevice(moecomm::Handle& handle, const std::int64_t* topkIdx, const __nv_bfloat16* rows,
                  __nv_bfloat16* arrived, __nv_bfloat16* sums, std::size_t tokens, cudaStream_t stream) {
  constexpr std::int32_t kTopk = 2, kHidden = 64;
  const std::size_t elements = tokens * kHidden;
  const moecomm::Span results(arrived, 4 * elements);
  handle.route({moecomm::Span(topkIdx, tokens * kTopk)}, stream);
  handle.dispatch({moecomm::Span(rows, elements), results, kHidden}, stream);
  handle.combine({results, moecomm::Span(sums, elements), kHidden}, stream);
}

}  // namespace moe::test
