// The ioctl interface of uverbs devices, for the one call that libibverbs needs: opening a device. Only through ioctl
// does a kernel announce that memory can be registered for relaxed order. Without that announcement libibverbs drops
// the request for it. Everything else is refused, so that libibverbs falls back to the older interface of written
// commands (fake_kernel.h).
#pragma once

namespace moe::test {

// Returns 0 or an errno value.
int answerIoctl(unsigned long request, void* argument);

}  // namespace moe::test
