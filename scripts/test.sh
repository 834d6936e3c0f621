#!/bin/bash
# Everything that must hold before a change is accepted, as named steps. Without steps it runs all of them except
# `slow`, `peers` and `aarch64`, in order, and ends with a table. A step that cannot run here says why and counts as
# skipped. Without steps, a step that has passed here with the same inputs (scripts/step_inputs.py) is left out, and
# steps leave out what docs/decisions/0096 says: tests that the address sanitizer repeats, kernels for sm_80 and
# sm_100, and most of what is expensive and concerns no new work. With `--all` nothing is left out.
# Usage: scripts/test.sh [--list] [--all] [STEP...]
set -uo pipefail
cd "$(dirname "$0")/.." || exit
root=$PWD
# In a container the files often belong to another user. We only list them.
export GIT_CONFIG_COUNT=1 GIT_CONFIG_KEY_0=safe.directory GIT_CONFIG_VALUE_0=$root
jobs=${JOBS:-$(nproc)}
all_steps="deps format tidy tests asan tsan rxe mutants lint codegen package python site"
more_steps="slow peers aarch64" # run only on request
skipped=77 # status of a step that cannot run here

have() { command -v "$1" >/dev/null 2>&1; }
skip() { echo "skipped: $*"; return $skipped; }

configure() { # preset, options...
  local launcher=()
  have ccache && launcher=(-DCMAKE_C_COMPILER_LAUNCHER=ccache -DCMAKE_CXX_COMPILER_LAUNCHER=ccache)
  cmake --preset "$1" "${launcher[@]}" "${@:2}" >"build/$1.log" 2>&1 || { cat "build/$1.log"; return 1; }
}
build() { # preset, options and targets...
  local preset=$1 options=()
  shift
  while [[ ${1:-} == -* ]]; do options+=("$1"); shift; done
  configure "$preset" "${options[@]}" && compile "$preset" "$@"
}
compile() { # preset, targets...
  cmake --build --preset "$1" -j "$jobs" --target "${@:2}" -- --quiet
}
run_tests() { # preset, ctest arguments...
  local preset=$1
  shift
  export UBSAN_OPTIONS=print_stacktrace=1 TSAN_OPTIONS=halt_on_error=1:second_deadlock_stack=1
  if [ "$preset" = asan ]; then
    # The sanitizer guesses where a loaded library's thread-local memory starts, and its search for leaks then crashes.
    export ASAN_OPTIONS=intercept_tls_get_addr=0
  fi
  # One more job than processors, because many tests mostly wait for deadlines.
  ctest --preset "$preset" -j $((jobs + 1)) "$@" && return
  repeat_failures "build/$preset/Testing/Temporary/LastTest.log"
  return 1
}

# Repeats the output of failed tests at the end, where a truncated log still has it.
repeat_failures() { # LastTest.log
  awk '/^[0-9]+\/[0-9]+ Testing: / { text = "" }
    { text = text $0 "\n" }
    /^Test Failed\.$/ { printf "%s", text }' "$1" | tail -n 200
}

# torch comes in the background, with --all jax too: this takes minutes of network and little else, and the last step
# needs it.
step_deps() {
  scripts/install_deps.sh all || return
  local modules=torch option=()
  [ "$everything" = 0 ] || modules="torch, jax" option=(--jax)
  python3 -c "import $modules" 2>/dev/null ||
    setsid scripts/fetch_torch.sh "${option[@]}" >build/fetch_torch.log 2>&1 </dev/null &
}

# The version is pinned, because other versions format the same text differently.
step_format() {
  have clang-format-14 || { skip "no clang-format-14"; return; }
  git ls-files -z --cached --others --exclude-standard -- '*.h' '*.hpp' '*.cuh' '*.cc' '*.c' '*.cu' |
    xargs -0 clang-format-14 --dry-run -Werror
}

step_tidy() {
  python3 scripts/tidy.py || return
  local test
  for test in tidy goals grafana host_peers step_inputs changed_files lint mutants; do python3 "tests/tools/${test}_test.py" || return; done
  if have shellcheck; then shellcheck -S warning scripts/*.sh tests/*/*.sh .ci/run; fi
}

find_nvcc() {
  if have nvcc; then return; fi
  [ -x /usr/local/cuda/bin/nvcc ] && PATH=$PATH:/usr/local/cuda/bin
}

# The build that most steps share. It is optimised. Where there is nvcc, it has the GPU backend, with `--all` for every
# architecture that we ship. Tests that need a GPU skip themselves where there is none.
build_main() { # targets...
  main_preset=optimised
  ! find_nvcc || main_preset=cuda
  main_build=$root/build/$main_preset
  build "$main_preset" "${architectures[@]}" "$@"
}

# What the address sanitizer's build repeats is left out here, except what is optimised differently: codecs, protocols,
# steps through the C API. What the step package repeats is left out too.
step_tests() {
  if [ "$everything" = 1 ] || ! have clang++; then
    build_main all && run_tests "$main_preset" -LE 'slow|rxe'
  else
    build_main "${shipped[@]}" moecomm_plain_tests &&
      run_tests "$main_preset" -LE 'slow|rxe|rdma|tools' -E 'NOT_BUILT|Package.WorksInAnotherProject|Readme.WorksWordByWord'
  fi
}

# Tests that take too long for every change.
step_slow() { build_main all && run_tests "$main_preset" -L slow; }

# The host backend beside MPI, for people to read the numbers. The step fails only if a program's results are wrong.
step_peers() {
  scripts/install_deps.sh peers || return
  configure optimised -DMOECOMM_PEERS=ON && compile optimised moerun moe_perf mpi_alltoallv shared_window &&
    scripts/host_peers.py --build build/optimised --rounds 3
}

# Built with the second compiler, for its warnings, and for its code in the quick tests. Lanes that are threads run in the
# steps tests and tsan.
step_asan() {
  have clang++ || { skip "no clang"; return; }
  local left_out=(-E ThreadedWarp)
  [ "$everything" = 0 ] || left_out=()
  build asan all && run_tests asan -LE 'sim|slow|rxe' "${left_out[@]}" && build/asan/tests/moecomm_sim --seeds 200
}

# Without the simulator, whose ranks are fibers of one thread, and without the tools.
step_tsan() { build tsan moecomm_thread_tests && run_tests tsan -LE 'sim|slow|rxe|tools' -E NOT_BUILT; }

# In a virtual machine: the verbs transport, and the library over it, on the kernel's software RDMA; and ranks that CRIU
# checkpoints.
step_rxe() {
  have qemu-system-x86_64 || { skip "no qemu-system-x86_64"; return; }
  tests/rxe_vm/make_initramfs.sh || return
  build_main moecomm_rxe_tests moecomm_api_tests moecomm_kill_rank moecomm_checkpoint_rank moerun || return
  tests/rxe_vm/run.sh "$main_build/tests/rxe_vm/moecomm_rxe_tests" || return
  tests/rxe_vm/run.sh tests/rxe_vm/library_test.sh "$main_build/src/moerun" "$main_build/tests/moecomm_api_tests" \
    "$main_build/tests/moecomm_kill_rank" || return
  have criu || { echo "no criu: checkpoints are not tested"; return; }
  tests/rxe_vm/run.sh -e MOECOMM_DOMAIN_SIZE=2 -e MOECOMM_TRANSPORT=tcp tests/api/checkpoint_test.sh \
    "$main_build/tests/moecomm_checkpoint_rank" 4 || [ $? = $skipped ]
}

# Every planted defect must be found by a test: with `--all` each of them, else those in new work and some others.
step_mutants() {
  local drawn=(--drawn)
  [ "$everything" = 0 ] || drawn=()
  python3 tests/sim/run_mutants.py --work build/mutants --jobs "$jobs" "${drawn[@]}" || return
  [ "$everything" = 0 ] || step_rules
}

# The same for the rules by which processes stay a group: a part of `mutants` with `--all`.
step_rules() {
  build_main moecomm_survivor_rank moecomm_replace_rank moecomm_api_tests moecomm_unit_tests moerun || return
  python3 tests/api/rule_mutants.py "$main_build" --work build/mutants/rules
}

# The host backend for 64-bit ARM, cross-compiled: codecs, protocols and steps, under qemu-user. That does not reorder
# memory accesses as such a processor may, and Debian 12's ends where a process with threads forks, as unit tests do.
step_aarch64() {
  scripts/install_deps.sh aarch64 || return
  build aarch64 src/all moecomm_codec_tests moecomm_protocol_tests moecomm_api_tests &&
    run_tests aarch64 -L 'codec|protocol' -E 'NOT_BUILT|ThreadedWarp' && run_tests aarch64 -R 'Backends/Step\..*/Host'
}

step_lint() {
  have clang-tidy-14 || { skip "no clang-tidy-14"; return; }
  # A separate configuration that is never built, because the sanitizers' presets compile several files as one.
  cmake --preset asan -B build/lint -DCMAKE_UNITY_BUILD=OFF >build/lint.log 2>&1 || { cat build/lint.log; return 1; }
  local all=()
  [ "$everything" = 0 ] || all=(--all)
  scripts/lint.py build/lint --jobs "$jobs" "${all[@]}"
}

# The generated code must follow the rules and match tests/codegen/kernels.toml. The checker must find planted defects.
step_codegen() {
  find_nvcc || { skip "no nvcc"; return; }
  build_main moecomm_objects || return
  JOBS=$jobs python3 scripts/check_kernels.py build/cuda "${checked[@]}" || return
  python3 tests/codegen/check_kernels_test.py "$(command -v nvcc)"
}

step_package() {
  build_main "${shipped[@]}" || return
  tests/package/run.sh "$main_build" && tests/abi/check_exports.sh "$main_build/src/libmoecomm.so" &&
    tests/abi/check_needed.sh "$main_build/src/libmoecomm.so" && tests/package/readme_test.sh "$main_build" || return
  tests/package/wheel_test.sh "$main_build" || { [ $? = $skipped ] && echo "the wheel is not tested"; }
}

# The binding's own tests, with its types and an engine's dispatcher, then the example. Debian's Python has numpy where
# another one may not. Without torch, or without jax, tests that need it say that they were skipped.
step_python() {
  build_main "${shipped[@]}" || return
  local python=python3
  if ! "$python" -c 'import torch' 2>/dev/null && scripts/fetch_torch.sh --wait; then
    export PYTHONPATH=$root/build/torch/site${PYTHONPATH:+:$PYTHONPATH}
  fi
  "$python" -c 'import numpy' 2>/dev/null || python=/usr/bin/python3
  [ -x build/types/bin/pyright ] || { python3 -m venv build/types &&
    build/types/bin/pip install --quiet --disable-pip-version-check mypy 'pyright[nodejs]' typing_extensions; } ||
    echo "types will not be checked"
  scripts/engines.sh megatron-core || echo "the test of Megatron's dispatcher will be skipped"
  export MOECOMM_LIBRARY=$main_build/src/libmoecomm.so PYTHONPYCACHEPREFIX=$root/build/pycache
  # Modules side by side, where there is a runner for that, because their ranks mostly wait for each other.
  if "$python" -c 'import xdist' 2>/dev/null; then
    "$python" -m pytest -q -p no:cacheprovider -n "$jobs" --dist loadfile --durations 10 python/tests || return
  else
    "$python" -m unittest discover -s python/tests || return
  fi
  "$python" -c 'import numpy' 2>/dev/null || { skip "the example needs numpy"; return; }
  "$main_build/src/moerun" -n 4 "$python" examples/moe_layer.py
}

# The documents, the interfaces and the programs as a static site. The script says why where it cannot run.
step_site() { scripts/site.sh && python3 tests/tools/site_test.py && python3 tests/tools/site_code_test.py; }

names=() results=() seconds=()
run_step() {
  local name=$1 begin status result inputs stamp=build/passed/$1
  begin=$(date +%s)
  echo "==== $name"
  inputs=$(python3 scripts/step_inputs.py "$name")
  if [ "$reuse" = 1 ] && [ -n "$inputs" ] && [ "$inputs" = "$(cat "$stamp" 2>/dev/null)" ]; then
    result=unchanged
  else
    rm -f "$stamp"
    ("step_$name") 2>&1 | tee "build/step_$name.log"
    status=${PIPESTATUS[0]}
    case $status in
      0) result=passed ;;
      "$skipped") result=skipped ;;
      *) result=FAILED ;;
    esac
    # Not recorded if an input has changed meanwhile.
    if [ "$result" = passed ] && [ "$inputs" = "$(python3 scripts/step_inputs.py "$name")" ]; then
      echo "$inputs" >"$stamp"
    fi
  fi
  names+=("$name") results+=("$result") seconds+=($(($(date +%s) - begin)))
  echo "==== $name: $result"
}

# A log that was cut still has its end, so what a failed step printed last stands there too.
print_failures() {
  local i
  for i in "${!names[@]}"; do
    [ "${results[i]}" = FAILED ] || continue
    printf '\n==== what %s printed last\n' "${names[i]}"
    tail -n 60 "build/step_${names[i]}.log"
  done
}

print_summary() {
  local i failed=0
  printf '\n%-10s %-9s %8s\n' step result seconds
  for i in "${!names[@]}"; do
    printf '%-10s %-9s %8d\n' "${names[i]}" "${results[i]}" "${seconds[i]}"
    [ "${results[i]}" = FAILED ] && failed=1
  done
  return $failed
}

[ "${1:-}" = --list ] && { echo "$all_steps $more_steps"; exit 0; }
everything=0 reuse=0
shipped=(src/all perf/all moecomm_tool_pages) # the library, its programs and their pages
architectures=(-DCMAKE_CUDA_ARCHITECTURES=90-real) checked=(--arch sm_90)
[ "${1:-}" = --all ] && { everything=1 architectures=(-UCMAKE_CUDA_ARCHITECTURES) checked=(); shift; }
if [ $# = 0 ]; then
  reuse=$((1 - everything))
  # shellcheck disable=SC2086 # the list is words
  set -- $all_steps
fi
for step in "$@"; do
  declare -F "step_$step" >/dev/null || { echo "no step '$step'; there are: $all_steps $more_steps" >&2; exit 2; }
done
mkdir -p build/passed
for step in "$@"; do run_step "$step"; done
print_failures
print_summary
