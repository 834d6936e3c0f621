// Answers the commands that libibverbs and libmlx5 write to a uverbs device, as the kernel's mlx5 driver would: enough
// to open the device, register memory, and make queues. The queues lie in the program's own memory, made by libmlx5;
// nobody carries out what is posted to them.
#pragma once

namespace moe::test {

// 0, or what errno becomes.
int answerCommand(const void* command);

}  // namespace moe::test
