#!/bin/bash
# scripts/demo.sh says what it does, shows progress while it builds, and prints the end of the log if the build fails. A
# fake cmake stands in for the build. Usage: demo_test.sh MOERUN MOE_PERF
set -u
demo=$(realpath "$(dirname "$0")/../../scripts/demo.sh")
MOERUN=$(realpath "$1") MOE_PERF=$(realpath "$2")
export MOERUN MOE_PERF
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failures=0
mkdir "$work/bin"
cat >"$work/bin/cmake" <<'CMAKE'
#!/bin/bash
if [ "$1" != --build ]; then
  mkdir -p "$4/src" "$4/perf" && ln -sf "$MOERUN" "$4/src/moerun" && ln -sf "$MOE_PERF" "$4/perf/moe_perf"
  exit
fi
for i in $(seq 1 143); do echo "[$i/143] Building CXX object some.cc.o"; done
[ -z "$FAILS" ] || { echo 'some.cc:1: error: no such thing'; exit 1; }
CMAKE
chmod +x "$work/bin/cmake"
# The demo must find no GPU, whatever the machine has.
printf '#!/bin/sh\nexit 1\n' >"$work/bin/nvidia-smi"
chmod +x "$work/bin/nvidia-smi"

expect() { # how often, regular expression
  [ "$(grep -Ec "$2" "$work/out")" = "$1" ] && return
  echo "FAILED: not $1 times: $2"
  failures=$((failures + 1))
}
run() {
  PATH=$work/bin:$PATH FAILS=$1 "$demo" "$work/build" >"$work/out" 2>&1
}

run '' || { echo "FAILED: the demo ends with $?" && failures=1; }
expect 1 '^demo: 1\. what building needs, installed with apt where it is missing'
expect 1 '^demo: 2\. building the library and two of its tools, host backend \(no GPU\), into '
expect 10 '^demo: [0-9]+ of 143 steps of the build are done, [0-9]+ s$'
expect 1 '^demo: 3\. high throughput, 4 ranks, host backend'
expect 1 '^demo: 4\. low latency, 4 ranks, host backend'
expect 2 '^ +[0-9]+ .* correct$'
expect 1 '^demo: all results were correct'
[ $failures = 0 ] || cat "$work/out"

run yes && { echo 'FAILED: a build that failed is a success' && failures=1; }
expect 1 '^some\.cc:1: error: no such thing$'
expect 1 '^demo: the build failed$'
expect 0 '^demo: 3\.'

# On a terminal, the demo shows ninja's own lines.
PATH=$work/bin:$PATH FAILS='' MOE_PERF=/bin/true script -qec "$demo $work/build" /dev/null >"$work/out" </dev/null ||
  { echo 'FAILED: the demo on a terminal' && failures=1; }
expect 143 '^\[[0-9]+/143\] Building'
expect 0 'steps of the build are done'
[ $failures = 0 ] || { cat "$work/out"; exit 1; }
echo 'all checks passed'
