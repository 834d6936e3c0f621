// The newer interface of uverbs devices, by ioctl, as far as it must be: opening a device. By it alone a kernel says
// that memory can be registered for relaxed order, without which libibverbs drops that wish. All else is refused so
// that libibverbs goes back to the older interface, of commands that are written (fake_kernel.h).
#pragma once

namespace moe::test {

// 0, or what errno becomes.
int answerIoctl(unsigned long request, void* argument);

}  // namespace moe::test
