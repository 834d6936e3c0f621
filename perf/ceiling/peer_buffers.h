// One buffer per rank in GPU memory that all ranks load and store: a window of the library's transport without the
// library's protocol. Used by the ceilings.
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
  // Collective. All ranks pass the same size. The memory is zeroed. Throws moe::Error.
  PeerBuffers(Group& group, int gpu, std::size_t bytes);
  PeerBuffers(const PeerBuffers&) = delete;
  PeerBuffers& operator=(const PeerBuffers&) = delete;

  // The address of `offset` in every rank's buffer, as mapped here.
  std::vector<std::uint64_t> at(std::size_t offset) const;
  std::uint8_t* mine(std::size_t offset) const { return own_->base() + offset; }

  // How many ranks use this rank's GPU.
  int sharers() const { return sharers_; }

  // Collective. Call it when no kernel is in flight any more. No rank frees its buffer while another still has it
  // mapped. After a rank has failed this call is skipped, and the destructor unmaps and frees.
  void close();

 private:
  Group& group_;
  std::unique_ptr<Window> own_;
  std::vector<PeerWindow> peers_;
  int sharers_ = 0;
};

}  // namespace moe::perf
