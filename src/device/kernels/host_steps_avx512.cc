// The host's steps for processors with AVX-512 (x86-64-v4).
#define MOE_HOST_BUILD moe_avx512
#define MOE_HOST_TARGET "avx2,bmi,bmi2,lzcnt,popcnt,avx512f,avx512bw,avx512cd,avx512dq,avx512vl"
#include "device/kernels/host_steps_text.h"
