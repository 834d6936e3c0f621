#!/bin/bash
# Builds moecomm and shows dispatch and combine between four ranks, with every result checked: on the GPUs if the
# machine has some and a CUDA compiler, else on the CPU. Installs what is missing. Usage: scripts/demo.sh
set -euo pipefail
cd "$(dirname "$0")/.."

scripts/install_deps.sh build
[ -d /usr/local/cuda/bin ] && PATH=$PATH:/usr/local/cuda/bin

backend=host cuda=OFF architectures=()
if command -v nvcc >/dev/null && nvidia-smi -L 2>/dev/null | grep -q '^GPU'; then
  backend=cuda cuda=ON architectures=(-DCMAKE_CUDA_ARCHITECTURES=native)
fi

build=build/demo
mkdir -p "$build"
echo "demo: building ($backend) into $build"
launcher=()
command -v ccache >/dev/null && launcher=(-DCMAKE_CXX_COMPILER_LAUNCHER=ccache)
cmake -S . -B "$build" -G Ninja -DCMAKE_BUILD_TYPE=Release -DMOECOMM_CUDA=$cuda -DMOECOMM_TESTS=OFF "${launcher[@]}" \
  "${architectures[@]}" >"$build/log" 2>&1 || { cat "$build/log"; exit 1; }
cmake --build "$build" >>"$build/log" 2>&1 || { tail -40 "$build/log"; exit 1; }

# The CPU moves what it can in a few seconds; the GPUs get a size that real models have.
ht_size="--tokens 128 --hidden 1024 --experts 32 --topk 4"
ll_size="--tokens 16 --hidden 1024 --experts 32 --topk 4"
if [ $backend = cuda ]; then
  ht_size="--tokens 4096 --hidden 7168 --experts 256 --topk 8"
  ll_size="--tokens 128 --hidden 7168 --experts 256 --topk 8"
fi

run() { # title, arguments of moe_perf...
  echo
  echo "demo: $1"
  shift
  "$build/src/moerun" -n 4 --no-tag "$build/perf/moe_perf" --backend "$backend" "$@"
}
# The sizes are words.
# shellcheck disable=SC2086
run "high throughput, 4 ranks, $backend backend" --mode ht $ht_size
# shellcheck disable=SC2086
run "low latency, 4 ranks, $backend backend" --mode ll $ll_size
