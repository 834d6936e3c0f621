// One buffer per rank in GPU memory that all ranks load and store: a window of the library's transport without the
// library's protocol. For the ceilings.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "perf/moe_perf/group.h"
#include "transport/window.h"

namespace moe::perf {

class PeerBuffers {
 public:
  // Collective; all ranks give the same size. Zeroed. Throws moe::Error.
  PeerBuffers(Group& group, int gpu, std::size_t bytes);
  PeerBuffers(const PeerBuffers&) = delete;
  PeerBuffers& operator=(const PeerBuffers&) = delete;

  // The addresses of the place `offset` in every rank's buffer, as mapped here.
  std::vector<std::uint64_t> at(std::size_t offset) const;
  std::uint8_t* mine(std::size_t offset) const { return own_->base() + offset; }

  // How many ranks use this rank's GPU.
  int sharers() const { return sharers_; }

  // Collective, when no kernel is in flight any more: no rank frees its buffer while another one has it mapped. Without
  // this call, because a rank has failed, the destructor unmaps and frees.
  void close();

 private:
  Group& group_;
  std::unique_ptr<Window> own_;
  std::vector<PeerWindow> peers_;
  int sharers_ = 0;
};

}  // namespace moe::perf
