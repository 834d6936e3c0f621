// Owners of libibverbs objects. A member that uses another one is declared after it, so that it is destroyed first.
#pragma once

#include <memory>

#include "transport/rdma/library.h"

namespace moe::verbs {

// Destroying fails only if something else still uses the object. That is a defect of ours, and a destructor cannot
// repair it.
template <class Object>
struct Destroy {
  int (*destroy)(Object*) = nullptr;
  void operator()(Object* object) const noexcept { destroy(object); }
};

template <class Object>
using Owner = std::unique_ptr<Object, Destroy<Object>>;

using Context = Owner<ibv_context>;
using ProtectionDomain = Owner<ibv_pd>;
using MemoryRegion = Owner<ibv_mr>;
using CompletionQueue = Owner<ibv_cq>;
using QueuePair = Owner<ibv_qp>;

}  // namespace moe::verbs
