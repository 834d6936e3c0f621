#!/bin/bash
# Everything that must hold before a change is taken, as named steps. Without arguments it runs all of them, in order,
# and ends with a table; a step that cannot run here says why and counts as skipped.
# Usage: scripts/test.sh [--list] [STEP...]
set -uo pipefail
cd "$(dirname "$0")/.." || exit
root=$PWD
# In a container the files often belong to somebody else; we only list them.
export GIT_CONFIG_COUNT=1 GIT_CONFIG_KEY_0=safe.directory GIT_CONFIG_VALUE_0=$root
jobs=${JOBS:-$(nproc)}
all_steps="deps format tidy dev clang asan tsan sim mutants lint cuda codegen package python"
skipped=77 # a step's status when it cannot run here

have() { command -v "$1" >/dev/null 2>&1; }
skip() { echo "skipped: $*"; return $skipped; }

configure() { # preset, cmake arguments...
  local preset=$1
  shift
  local launcher=()
  have ccache && launcher=(-DCMAKE_C_COMPILER_LAUNCHER=ccache -DCMAKE_CXX_COMPILER_LAUNCHER=ccache)
  cmake --preset "$preset" "${launcher[@]}" "$@" >"$root/build/$preset.log" 2>&1 || { cat "$root/build/$preset.log"; return 1; }
}
build() { configure "$@" && cmake --build --preset "$1" -j "$jobs"; }
run_tests() { # preset, ctest arguments...
  local preset=$1
  shift
  ctest --preset "$preset" -j "$jobs" "$@"
}

step_deps() { scripts/install_deps.sh all; }

# The version is pinned: others format the same text differently.
step_format() {
  have clang-format-14 || { skip "no clang-format-14"; return; }
  git ls-files -z --cached --others --exclude-standard -- '*.h' '*.cuh' '*.cc' '*.c' '*.cu' |
    xargs -0 clang-format-14 --dry-run -Werror
}

step_tidy() {
  python3 scripts/tidy.py && python3 tests/tools/tidy_test.py || return
  if have shellcheck; then shellcheck -S warning scripts/*.sh tests/*/*.sh .ci/run; fi
}

step_dev() { build dev && run_tests dev; }

# The second compiler: its warnings, and its code through the quick tests.
step_clang() {
  have clang++ || { skip "no clang"; return; }
  build clang && run_tests clang -LE slow
}

step_asan() {
  build asan &&
    UBSAN_OPTIONS=print_stacktrace=1 run_tests asan -LE 'slow|package|abi'
}

step_tsan() { build tsan && TSAN_OPTIONS=halt_on_error=1:second_deadlock_stack=1 run_tests tsan -LE 'slow|package|abi'; }

step_sim() { build sim && run_tests sim; }

# Every planted defect must be found by some test. The list is in tests/sim/mutants.
step_mutants() {
  [ -x tests/sim/run_mutants.sh ] || { skip "no tests/sim/run_mutants.sh"; return; }
  configure sim && tests/sim/run_mutants.sh build/sim
}

step_lint() {
  have run-clang-tidy-14 || { skip "no run-clang-tidy-14"; return; }
  configure clang || return
  run-clang-tidy-14 -quiet -j "$jobs" -p build/clang "$root/src/.*\.cc" >build/lint.log 2>/dev/null
  local status=$?
  grep -E '(warning|error):' build/lint.log | sort -u
  return $status
}

find_nvcc() {
  if have nvcc; then return; fi
  [ -x /usr/local/cuda/bin/nvcc ] && PATH=$PATH:/usr/local/cuda/bin
}

# Compiles for every architecture that we ship; tests that need a GPU skip themselves where there is none.
step_cuda() {
  find_nvcc || { skip "no nvcc"; return; }
  build cuda && run_tests cuda -L 'gpu|abi'
}

# Kernels use neither stack nor spilled registers.
step_codegen() {
  find_nvcc || { skip "no nvcc"; return; }
  configure cuda && python3 scripts/check_kernels.py build/cuda
}

step_package() { build release && tests/package/run.sh build/release && tests/abi/check_exports.sh build/release/src/libmoecomm.so; }

step_python() {
  [ -d examples ] && [ -n "$(find examples -name '*.py')" ] || { skip "no Python example"; return; }
  build dev || return
  local example
  for example in $(find examples -name '*.py' | sort); do
    echo "$example"
    MOECOMM_LIBRARY=$root/build/dev/src/libmoecomm.so build/dev/src/moerun -n 2 python3 "$example" || return
  done
}

names=() results=() seconds=()
run_step() {
  local name=$1 begin status result
  begin=$(date +%s)
  echo "==== $name"
  ("step_$name")
  status=$?
  case $status in
    0) result=passed ;;
    "$skipped") result=skipped ;;
    *) result=FAILED ;;
  esac
  names+=("$name") results+=("$result") seconds+=($(($(date +%s) - begin)))
  echo "==== $name: $result"
}

print_summary() {
  local i failed=0
  printf '\n%-10s %-8s %8s\n' step result seconds
  for i in "${!names[@]}"; do
    printf '%-10s %-8s %8d\n' "${names[i]}" "${results[i]}" "${seconds[i]}"
    [ "${results[i]}" = FAILED ] && failed=1
  done
  return $failed
}

[ "${1:-}" = --list ] && { echo "$all_steps"; exit 0; }
# shellcheck disable=SC2086 # the list is words
[ $# -gt 0 ] || set -- $all_steps
for step in "$@"; do
  declare -F "step_$step" >/dev/null || { echo "no step '$step'; there are: $all_steps" >&2; exit 2; }
done
mkdir -p build
for step in "$@"; do run_step "$step"; done
print_summary
