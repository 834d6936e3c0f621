// The host's steps for processors with AVX2 (x86-64-v3).
#define MOE_HOST_BUILD moe_avx2
#define MOE_HOST_TARGET "avx2,bmi,bmi2,lzcnt,popcnt"
#include "device/kernels/host_steps_text.h"
