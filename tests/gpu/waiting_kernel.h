// A kernel that waits for a word of device memory, as steps do, and one that only has to be loaded.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

namespace moe::test {

// Waits until the word is `value`, at most two seconds; *came says whether it was.
void launchWaiting(const std::uint64_t* word, std::uint64_t value, int* came, cudaStream_t stream);
void launchNothing(cudaStream_t stream);

}  // namespace moe::test
