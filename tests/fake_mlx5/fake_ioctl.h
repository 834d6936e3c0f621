// The newer interface of uverbs devices, by ioctl, as far as it is needed: opening a device. Only through it does a
// kernel say that memory can be registered for relaxed order, and without that libibverbs drops the wish. Everything
// else is refused, so that libibverbs returns to the older interface of written commands (fake_kernel.h).
#pragma once

namespace moe::test {

// 0, or what errno becomes.
int answerIoctl(unsigned long request, void* argument);

}  // namespace moe::test
