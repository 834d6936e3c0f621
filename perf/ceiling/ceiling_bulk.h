// Bulk copies of the ceilings, global -> shared -> global. A warp works through a list of copies, with loads running
// ahead of stores. One lane issues them, and all lanes prefetch the list. GPU code for ceiling/ceiling_kernels.cu.
#pragma once

#include "device/policy/cuda/bulk_warp.h"
#include "perf/ceiling/ceiling_kernels.h"

namespace moe::perf {

inline constexpr int kLanes = 32;
inline constexpr unsigned kAll = 0xffffffffu;

MOE_LANES int lane() {
  return static_cast<int>(threadIdx.x % kLanes);
}

// The next 64 copies of a warp in the lanes' registers, so that issuing a copy needs no memory access. The 32 copies
// after them are being loaded. All lanes call every function together, with the same positions.
class CopyWindow {
 public:
  static constexpr int kCopies = 2 * kLanes;

  MOE_LANES CopyWindow(const BulkCopy* copies, std::int64_t count)
      : next_(copies + lane()), left_(count), low_(take(0)), high_(take(kLanes)), coming_(take(kCopies)) {
    findBegins();
    begins_ |= count > 0 ? 1 : 0;  // the first copy of the source may belong to another warp
  }

  MOE_LANES int size() const { return left_ < kCopies ? static_cast<int>(left_) : kCopies; }
  // Returns the first position from `at` on where a copy loads its source, or kCopies.
  MOE_LANES int nextLoad(int at) const {
    const std::uint64_t rest = at < kCopies ? begins_ >> at << at : 0;
    return rest != 0 ? __ffsll(static_cast<long long>(rest)) - 1 : kCopies;
  }
  MOE_LANES std::uint64_t from(int at) const { return pick(low_.from, high_.from, at); }
  MOE_LANES std::uint64_t to(int at) const { return pick(low_.to, high_.to, at); }
  MOE_LANES std::uint32_t bytes(int at) const { return pick(low_.bytes, high_.bytes, at); }

  // Drops the first half of the window.
  MOE_LANES void advance() {
    next_ += kLanes;
    left_ -= kLanes;
    low_ = high_;
    high_ = coming_;
    coming_ = take(kCopies);
    findBegins();
  }

 private:
  MOE_LANES BulkCopy take(int at) const { return at + lane() < left_ ? next_[at] : BulkCopy{0, 0, 0, 0}; }
  MOE_LANES void findBegins() {
    begins_ = __ballot_sync(kAll, low_.loads != 0);
    begins_ |= static_cast<std::uint64_t>(__ballot_sync(kAll, high_.loads != 0)) << kLanes;
  }
  template <class Value>
  static MOE_LANES Value pick(Value low, Value high, int at) {
    return __shfl_sync(kAll, at < kLanes ? low : high, at % kLanes);
  }

  const BulkCopy* next_;
  std::int64_t left_;
  BulkCopy low_, high_, coming_;
  std::uint64_t begins_ = 0;
};

// The stages of one warp. Lane 0 issues every copy, because completion of bulk copies is tracked per thread.
template <int kStages>
class BulkStages {
 public:
  MOE_LANES BulkStages(std::uint8_t* stages, std::uint64_t* barriers)
      : stages_(stages), full_(cuda_bulk::sharedAddress(barriers)) {
    if (lane() != 0) return;
    for (int i = 0; i < kStages; ++i) cuda_bulk::initBarrier(full(static_cast<std::uint32_t>(i)));
    cuda_bulk::fenceBarrierInit();
  }

  MOE_LANES bool mayLoad() const { return loads_ - stores_ < kStages - 1; }
  // Waits until all but the latest group of stores have left their stages. Then kStages - 1 stages are free.
  MOE_LANES void freeStages() {
    if (lane() == 0) cuda_bulk::waitRead<1>();
  }
  MOE_LANES void load(std::uint64_t from, std::uint32_t bytes) {
    if (lane() == 0) {
      cuda_bulk::expectBytes(full(loads_), bytes);
      cuda_bulk::load(cuda_bulk::sharedAddress(stage(loads_)), reinterpret_cast<const void*>(from), bytes,
                      full(loads_));
    }
    ++loads_;
  }
  MOE_LANES void beginStores() {
    if (lane() != 0) return;
    while (!cuda_bulk::tryWait(full(stores_), stores_ / kStages & 1)) {
    }
  }
  MOE_LANES void store(std::uint64_t to, std::uint32_t bytes) {
    if (lane() == 0) cuda_bulk::store(reinterpret_cast<void*>(to), stage(stores_), bytes);
  }
  MOE_LANES void endStores() {
    if (lane() == 0) cuda_bulk::commit();
    ++stores_;
  }
  MOE_LANES void finish() {
    if (lane() == 0) cuda_bulk::waitComplete();
  }

 private:
  MOE_LANES std::uint8_t* stage(std::uint32_t use) const { return stages_ + use % kStages * kBulkStageBytes; }
  MOE_LANES std::uint32_t full(std::uint32_t use) const { return full_ + use % kStages * 8; }

  std::uint8_t* stages_;
  std::uint32_t full_;
  std::uint32_t loads_ = 0, stores_ = 0;
};

template <int kStages>
MOE_LANES void moveCopies(CopyWindow window, BulkStages<kStages> stages) {
  for (int at = 0, loadAt = 0; at < window.size();) {
    stages.freeStages();
    for (; stages.mayLoad() && (loadAt = window.nextLoad(loadAt)) < CopyWindow::kCopies; ++loadAt) {
      stages.load(window.from(loadAt), window.bytes(loadAt));
    }
    const int end = min(window.nextLoad(at + 1), window.size());
    stages.beginStores();
    for (; at < end; ++at) stages.store(window.to(at), window.bytes(at));
    stages.endStores();
    if (at < kLanes) continue;
    window.advance();
    loadAt = max(loadAt, at) - kLanes;
    at -= kLanes;
  }
  stages.finish();
}

}  // namespace moe::perf
