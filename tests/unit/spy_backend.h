// The host backend, watched: what was asked of it, and launches that fail when a test wants it.
#pragma once

#include <vector>

#include "backend/backend.h"

namespace moe::test {

// Outlives the backend that it belongs to.
struct Spy {
  bool launchesFail = false;
  bool captures = false;
  std::vector<Workload> asked;  // shapes for
  std::vector<Step> launched;
};

class SpyBackend final : public Backend {
 public:
  explicit SpyBackend(Spy& spy) : spy_(spy), host_(makeHostBackend()) {}

  int kind() const noexcept override { return host_->kind(); }
  int device() const noexcept override { return host_->device(); }
  bool bulkCopies() const noexcept override { return host_->bulkCopies(); }
  void setSharers(int ranks) noexcept override { host_->setSharers(ranks); }
  Memory allocatePrivate(std::size_t bytes, const Allocator& allocator) override {
    return host_->allocatePrivate(bytes, allocator);
  }
  Memory allocateHostVisible(std::size_t bytes) override { return host_->allocateHostVisible(bytes); }
  Memory shareWithSteps(void* begin, std::size_t bytes, HostPages kind) override {
    return host_->shareWithSteps(begin, bytes, kind);
  }
  void copyToPrivate(void* to, const void* from, std::size_t bytes) override { host_->copyToPrivate(to, from, bytes); }
  void readWords(std::uint64_t* to, const std::uint64_t* from, std::size_t count) override {
    host_->readWords(to, from, count);
  }
  std::unique_ptr<WindowReader> makeReader(const std::uint8_t* window) override { return host_->makeReader(window); }
  std::unique_ptr<WindowWriter> makeWriter(std::uint8_t* window) override { return host_->makeWriter(window); }
  int routeWarpsMax() const noexcept override { return host_->routeWarpsMax(); }
  LaunchShape shapeFor(const Workload& work) const noexcept override {
    spy_.asked.push_back(work);
    return host_->shapeFor(work);
  }
  Parts partsFor(const LaunchShape& shape, int rows, std::uint32_t rowBytes) const noexcept override {
    return host_->partsFor(shape, rows, rowBytes);
  }
  moeResult_t launch(Step step, const StepParams& params, const LaunchShape& shape, moeStream_t stream,
                     std::string* what) noexcept override {
    if (spy_.launchesFail) {
      *what = "the test lets launches fail";
      return moeCudaError;
    }
    spy_.launched.push_back(step);
    return host_->launch(step, params, shape, stream, what);
  }
  bool capturing(moeStream_t) const noexcept override { return spy_.captures; }
  void synchronize() noexcept override { host_->synchronize(); }

 private:
  Spy& spy_;
  std::unique_ptr<Backend> host_;
};

}  // namespace moe::test
