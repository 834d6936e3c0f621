// Ends what host_steps_begin.h has begun.
#pragma once

#undef moe
#if defined(__clang__)
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif
