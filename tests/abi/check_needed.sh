#!/bin/sh
# The library and its tools need only the C and C++ libraries. They contain fmt and libsodium, and the library the CUDA
# runtime. They load hwloc, libibverbs, libmlx5, NVML and the GPU driver at run time. Usage: check_needed.sh LIBRARY|TOOL
set -eu
library=$1
allowed='libc\.so\.6|libm\.so\.6|libdl\.so\.2|librt\.so\.1|libpthread\.so\.0|ld-linux[-a-z0-9_]*\.so\.[0-9]+'
allowed="$allowed|libstdc\+\+\.so\.6|libgcc_s\.so\.1|libmoecomm\.so\.[0-9.]+"

needed=$(LC_ALL=C readelf -d "$library" | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p')
[ -n "$needed" ] || { echo "readelf shows nothing that $library needs"; exit 1; }
others=$(echo "$needed" | grep -Evx "$allowed" || true)
[ -z "$others" ] || { echo "$library must not need" $others; exit 1; }
