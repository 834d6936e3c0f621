// Answers the commands that libibverbs and libmlx5 write to a uverbs device, as the kernel's mlx5 driver would. That
// covers opening the device, registering memory, and making and connecting queues. libmlx5 makes the queues in the
// program's own memory. The software adapter (engine.h) executes them if it has a folder in which to meet other
// adapters.
#pragma once

#include <cstdint>

#include <rdma/mlx5-abi.h>

namespace moe::test {

// `context` is the descriptor of the opened device. Returns 0 or an errno value.
int answerCommand(int context, const void* command);

// The data that the mlx5 driver reports to a program that opens the device.
mlx5_ib_alloc_ucontext_resp describeContext();

}  // namespace moe::test
