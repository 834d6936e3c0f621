// Copies of device memory that kernels may be writing, and readings of their clock. See Snapshot.
#pragma once

#include <memory>

#include "backend/snapshot.h"

namespace moe {

std::unique_ptr<Snapshot> makeCudaSnapshot(const std::uint64_t* memory, std::size_t bytes, int device);

}  // namespace moe
