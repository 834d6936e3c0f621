// Answers the commands that libibverbs and libmlx5 write to a uverbs device, as the kernel's mlx5 driver would. That is
// enough to open the device, register memory, and make and connect queues. The queues lie in the program's own memory,
// made by libmlx5. The software adapter (engine.h) executes them if it has a folder in which to meet others.
#pragma once

#include <cstdint>

#include <rdma/mlx5-abi.h>

namespace moe::test {

// `context` is the descriptor of the opened device. 0, or what errno becomes.
int answerCommand(int context, const void* command);

// What mlx5's driver says of itself to who opens the device.
mlx5_ib_alloc_ucontext_resp describeContext();

}  // namespace moe::test
