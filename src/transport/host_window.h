// A window in host memory: a memfd, mapped by the processes of one host.
#pragma once

#include <memory>
#include <string>

#include "transport/window.h"

namespace moe {

// The first mapping chooses the addresses.
class HostRange : public AddressRange {
 public:
  HostRange(std::size_t bytes, std::string whose);
  ~HostRange() override;

  void unmap() override;
  void map(const MemoryHandle& handle) override;
  void mapScratch() override;
  // Maps a sealed file of bytes() bytes.
  void mapFile(int fd);

 private:
  std::string whose_;
};

class HostWindow : public Window {
 public:
  HostWindow(std::size_t bytes, const Allocator& allocator);

  void describe(WindowCard* card) const override;
  PeerWindow open(int rank, const WindowCard& mine, const WindowCard& peer, const FetchFd& fetch) const override;
  PeerWindow openLost(int rank, const WindowCard& peer) const override;
  std::string whyFixed() const override;
  void takeAnew() override;

 protected:
  virtual std::shared_ptr<AddressRange> rangeFor(std::size_t bytes, const std::string& whose) const;

 private:
  std::size_t bytes_;
  std::shared_ptr<HostRange> own_;  // range_
};

}  // namespace moe
