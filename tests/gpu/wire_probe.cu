#include "device/policy/cuda/warp.h"
#include "device/queue/landing.h"
#include "gpu/cuda_memory.h"
#include "gpu/wire_probe.h"

namespace moe::test {
namespace {

// Where a kernel puts its results.
struct ProbePlaces {
  std::uint8_t *coded, *sum, *own;
};

// A block whose warps make one row, part by part, then read it.
template <class Warp, bool kLand>
__global__ void wireKernel(ProbeSum probe, int parts, ProbePlaces places) {
  CudaWarp::prepareBlock();
  const Warp warp;
  const CommView comm{};  // no word is missing, so nobody waits
  probe.which = probePart(probe.format.elements, parts, static_cast<int>(threadIdx.x) / CudaWarp::kLanes);
  const bool works = probe.which.index < probe.which.count;
  probe.to = places.coded;
  if (works) warp.reduceRows(comm, ProbeCoded<kLand>{probe});
  __threadfence();
  __syncthreads();
  probe.to = places.sum;
  probe.codedRow = places.coded;
  if constexpr (kLand) {
    if (works) warp.reduceRows(comm, ProbeTaken{{probe}});
  } else {
    if (works) warp.reduceRows(comm, ProbeRead{probe});
    probe.to = places.own;
    if (works && probe.rowTerms > 0) warp.reduceRows(comm, ProbeOwn{probe});
  }
}
template <bool kLand>
auto wireKernelFor(const WireQuestion& question) {
  if (!question.oneFormat) return wireKernel<CudaWarp, kLand>;
  switch (question.type) {
    case kWireFp8:
      return wireKernel<OnlyFor<CudaWarp, RowTypes::bf16, kWireFp8>, kLand>;
    case kWireFp8Blocks:
      return wireKernel<OnlyFor<CudaWarp, RowTypes::bf16, kWireFp8Blocks>, kLand>;
    case kWireNvfp4:
      return wireKernel<OnlyFor<CudaWarp, RowTypes::bf16, kWireNvfp4>, kLand>;
    default:
      return wireKernel<OnlyFor<CudaWarp, RowTypes::bf16, kWireLogfmt10>, kLand>;
  }
}

// The content that has landed in a row, as plain words; padding stays 0.
__global__ void copyLanded(const std::uint32_t* from, std::uint32_t* to, int words) {
  for (int i = static_cast<int>(threadIdx.x); i < words; i += static_cast<int>(blockDim.x)) {
    to[i] = hasLanded(from[i]) ? fromLanding(from[i]) : 0;
  }
}

// Makes codes only.
template <bool kLand>
__global__ void codeKernel(ProbeSum probe, int parts, std::uint8_t* coded) {
  CudaWarp::prepareBlock();
  probe.which = probePart(probe.format.elements, parts, static_cast<int>(threadIdx.x) / CudaWarp::kLanes);
  probe.to = coded;
  if (probe.which.index < probe.which.count) CudaWarp{}.reduceRows(CommView{}, ProbeCoded<kLand>{probe});
}

}  // namespace

WireAnswer answerOfGpu(const WireQuestion& question) {
  const WireRow wire = question.wire();
  const std::size_t bytes = wire.bytes(), rowBytes = static_cast<std::size_t>(question.rowBytes());
  const auto rows = allocate<std::uint8_t>(question.rows.size() + 16), coded = allocate<std::uint8_t>(bytes),
             plain = allocate<std::uint8_t>(bytes), sum = allocate<std::uint8_t>(rowBytes),
             own = allocate<std::uint8_t>(rowBytes);
  check(cudaMemcpy(rows.get(), question.rows.data(), question.rows.size(), cudaMemcpyHostToDevice), "upload");
  const ProbeSum probe{
      wire,       {},      question.rowType, static_cast<int>(rowBytes), question.terms, question.weighs,
      rows.get(), nullptr, nullptr};
  const ProbePlaces places{coded.get(), sum.get(), own.get()};
  check(cudaMemset(own.get(), 0, rowBytes), "clear");
  const unsigned threads = static_cast<unsigned>(question.parts * CudaWarp::kLanes);
  const auto clear = [&] { check(cudaMemset(coded.get(), 0, bytes), "clear"); };
  const auto get = [](const std::uint8_t* from, std::size_t count) {
    std::vector<std::uint8_t> result(count);
    check(cudaMemcpy(result.data(), from, count, cudaMemcpyDeviceToHost), "wireKernel");
    return result;
  };
  WireAnswer answer;
  clear();
  if (question.lands) {
    codeKernel<true><<<1, threads>>>(probe, question.parts, coded.get());
    copyLanded<<<1, 256>>>(reinterpret_cast<const std::uint32_t*>(coded.get()),
                           reinterpret_cast<std::uint32_t*>(plain.get()), static_cast<int>(bytes / 4));
    answer.coded = get(plain.get(), bytes);
    clear();
    wireKernelFor<true>(question)<<<1, threads>>>(probe, question.parts, places);
    for (const std::uint8_t byte : get(coded.get(), bytes)) answer.leftEmpty = answer.leftEmpty && byte == 0;
  } else {
    wireKernelFor<false>(question)<<<1, threads>>>(probe, question.parts, places);
    answer.coded = get(coded.get(), bytes);
  }
  check(cudaGetLastError(), "wireKernel");
  answer.sum = get(sum.get(), rowBytes);
  answer.own = get(own.get(), rowBytes);
  return answer;
}

}  // namespace moe::test
