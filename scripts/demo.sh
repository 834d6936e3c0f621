#!/bin/bash
# Builds moecomm and shows dispatch and combine between four ranks, with every result checked. It runs on GPUs if the
# machine has some and a CUDA compiler, otherwise on the CPU. It installs what is missing.
# Usage: scripts/demo.sh [BUILD_DIRECTORY]
set -euo pipefail
build=$(realpath -m "${1:-$(dirname "$0")/../build/demo}")
cd "$(dirname "$0")/.."

echo "demo: 1. what building needs, installed with apt where it is missing (scripts/install_deps.sh build)"
scripts/install_deps.sh build
[ -d /usr/local/cuda/bin ] && PATH=$PATH:/usr/local/cuda/bin

backend=host why="no GPU" cuda=OFF architectures=()
if nvidia-smi -L 2>/dev/null | grep -q '^GPU'; then
  why="no CUDA compiler"
  if command -v nvcc >/dev/null; then backend=cuda why=GPUs cuda=ON architectures=(-DCMAKE_CUDA_ARCHITECTURES=native); fi
fi

# On a terminal ninja shows its own line. Otherwise this prints a line for every tenth of the work.
tenths() {
  local line built all tenths=1
  while IFS= read -r line; do
    [[ $line =~ ^\[([0-9]+)/([0-9]+)\] ]] || continue
    built=${BASH_REMATCH[1]} all=${BASH_REMATCH[2]}
    ((10 * built >= tenths * all)) || continue
    echo "demo: $built of $all steps of the build are done, $SECONDS s"
    tenths=$((10 * built / all + 1))
  done
}
compile() {
  local what=(--build "$build" --target moerun moe_perf)
  if [ -t 1 ]; then cmake "${what[@]}"; else cmake "${what[@]}" | tee -a "$build/log" | tenths; fi
}

# Builds only what the demo runs, and fast. The ranks are on one host. Only the timed steps need optimisation, and those
# files choose their own level. They are compiled once, not again for AVX2 and AVX-512, which takes a fifth off the time.
# Headers are most of a file, and nvcc does not share them.
lean=(-DMOECOMM_TESTS=OFF -DMOECOMM_RDMA=OFF -DMOECOMM_WERROR=OFF -DMOECOMM_HOST_BUILDS=OFF -DCMAKE_CXX_FLAGS_RELEASE="-O1 -DNDEBUG")
takes="some minutes"
[ $backend = cuda ] || lean+=(-DCMAKE_UNITY_BUILD=ON) takes="about a minute"
command -v ccache >/dev/null && lean+=(-DCMAKE_CXX_COMPILER_LAUNCHER=ccache)

mkdir -p "$build"
echo "demo: 2. building the library and two of its tools, $backend backend ($why), into $build"
echo "demo:    $takes the first time, on $(nproc) processors; what is not shown is in $build/log"
cmake -S . -B "$build" -G Ninja -DCMAKE_BUILD_TYPE=Release -DMOECOMM_CUDA=$cuda "${lean[@]}" "${architectures[@]}" \
  >"$build/log" 2>&1 || { cat "$build/log"; exit 1; }
compile || { [ -t 1 ] || tail -40 "$build/log"; echo "demo: the build failed"; exit 1; }

# A size that the CPU moves in a few seconds. The GPUs get a size of real models.
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
# The size options are separate words.
# shellcheck disable=SC2086
run "3. high throughput, 4 ranks, $backend backend; every payload and sum is verified" --mode ht $ht_size
# shellcheck disable=SC2086
run "4. low latency, 4 ranks, $backend backend; every payload and sum is verified" --mode ll $ll_size
echo
echo "demo: all results were correct. More: $build/perf/moe_perf --help, and README.md"
