// Forwards to the host backend. A test derives from it and overrides what it watches or refuses.
#pragma once

#include "backend/backend.h"

namespace moe::test {

class ForwardingBackend : public Backend {
 public:
  int kind() const noexcept override { return host_->kind(); }
  int device() const noexcept override { return host_->device(); }
  bool bulkCopies() const noexcept override { return host_->bulkCopies(); }
  bool landingCombines() const noexcept override { return host_->landingCombines(); }
  bool hasPlainSteps() const noexcept override { return host_->hasPlainSteps(); }
  bool overlapsSteps() const noexcept override { return host_->overlapsSteps(); }
  void setSharers(int ranks) noexcept override { host_->setSharers(ranks); }
  Memory allocatePrivate(std::size_t bytes, const Allocator& allocator) override {
    return host_->allocatePrivate(bytes, allocator);
  }
  Memory allocateHostVisible(std::size_t bytes) override { return host_->allocateHostVisible(bytes); }
  Memory shareWithSteps(void* begin, std::size_t bytes, HostPages kind) override {
    return host_->shareWithSteps(begin, bytes, kind);
  }
  void copyToPrivate(void* to, const void* from, std::size_t bytes) override { host_->copyToPrivate(to, from, bytes); }
  void copyToPrivate(void* to, const void* from, std::size_t bytes, moeStream_t stream) override {
    host_->copyToPrivate(to, from, bytes, stream);
  }
  void readWords(std::uint64_t* to, const std::uint64_t* from, std::size_t count) override {
    host_->readWords(to, from, count);
  }
  bool isFarFromHost() const noexcept override { return host_->isFarFromHost(); }
  bool bringWords(std::uint64_t* to, const std::uint64_t* from, std::size_t count, Deadline end) override {
    return host_->bringWords(to, from, count, end);
  }
  bool loadsKernelsLazily() const noexcept override { return host_->loadsKernelsLazily(); }
  std::unique_ptr<WindowReader> makeReader(const std::uint8_t* window) override { return host_->makeReader(window); }
  std::unique_ptr<WindowWriter> makeWriter(std::uint8_t* window) override { return host_->makeWriter(window); }
  std::unique_ptr<Snapshot> makeSnapshot(const std::uint64_t* memory, std::size_t bytesMax) override {
    return host_->makeSnapshot(memory, bytesMax);
  }
  int routeWarpsMax() const noexcept override { return host_->routeWarpsMax(); }
  int tableBlocksMax() const noexcept override { return host_->tableBlocksMax(); }
  LaunchShape shapeFor(const Workload& work) const noexcept override { return host_->shapeFor(work); }
  Parts partsFor(const LaunchShape& shape, int rows, std::uint32_t rowBytes) const noexcept override {
    return host_->partsFor(shape, rows, rowBytes);
  }
  moeResult_t launch(Step step, const StepParams& params, const LaunchShape& shape, moeStream_t stream,
                     std::string* what) noexcept override {
    return host_->launch(step, params, shape, stream, what);
  }
  bool capturing(moeStream_t stream) const noexcept override { return host_->capturing(stream); }
  void synchronize() noexcept override { host_->synchronize(); }

 private:
  std::unique_ptr<Backend> host_ = makeHostBackend();
};

}  // namespace moe::test
