#!/bin/sh
# moe_info answers on any machine, as text and as JSON. Usage: moe_info_test.sh PATH_OF_MOE_INFO BUILT_WITH_CUDA(1|0)
set -eu
text=$("$1")
echo "$text" | grep -q '^moecomm [0-9]*\.[0-9]*\.[0-9]*$'
echo "$text" | grep -q '^  host: available$'
echo "$text" | grep -Eq '^  cuda: .+'
# Without CUDA in the build, neither driver nor GPU is to blame.
[ "$2" = 1 ] || echo "$text" | grep -q '^  cuda: .*this build of moecomm has no CUDA$'
echo "$text" | grep -q 'NUMA node'
echo "$text" | grep -Eq '^  locked memory: (present|missing|not checkable here): .+'
[ "$(echo "$text" | tail -n 1 | cut -d: -f1)" = 'Between hosts' ]
adapters=$(mktemp -d)
trap 'rm -rf "$adapters"' EXIT
port=$adapters/class/infiniband/mlx5_9/ports/1
mkdir -p "$port/gids" "$port/gid_attrs/types"
echo '4: ACTIVE' >"$port/state"
echo InfiniBand >"$port/link_layer"
echo '400 Gb/sec (4X NDR)' >"$port/rate"
echo fe80:0000:0000:0000:0000:0000:0000:0001 >"$port/gids/0"
echo 'IB/RoCE v1' >"$port/gid_attrs/types/0"
SYSFS_PATH=$adapters "$1" | grep -Eq '^ *rail 0: mlx5_9, InfiniBand 400 Gb/sec'
MOECOMM_NICS=none_such "$1" | grep -Eq '^RDMA: none \(MOECOMM_NICS names none_such, which this machine does not have'
"$1" --json | python3 -c '
import json, sys
report = json.load(sys.stdin)
assert report["backends"]["host"]["available"]
cuda = report["backends"]["cuda"]
assert cuda["available"] or cuda["reason"], cuda
assert report["machine"]["threads"] >= 1
found = {one["name"]: one for one in report["rdma"]["prerequisites"]}
assert len(found) == 14, found
assert all(one["presence"] in ("present", "missing", "not checkable here") and one["found"] for one in found.values())
assert all(one["advice"] for one in found.values() if one["presence"] == "missing")
assert not any(one["advice"] for one in found.values() if one["presence"] == "present")
assert report["rdma"]["between_hosts"]'
# --check: a status, and a line for each thing or reason.
[ "$("$1" --check host)" = 'host: usable' ]
fails() { # status, options...
  wanted=$1
  shift
  status=0
  "$@" >"$adapters/out" 2>"$adapters/err" || status=$?
  [ $status = "$wanted" ] || { echo "$*: status $status"; exit 1; }
}
MOECOMM_NICS=none_such fails 1 "$1" --check rdma
grep -Eq '^rdma: not usable: MOECOMM_NICS names none_such' "$adapters/out"
if grep -vq '^rdma: not usable: ' "$adapters/out"; then cat "$adapters/out" && exit 1; fi
MOECOMM_NICS=none_such fails 1 "$1" --check
[ "$(cut -d: -f1 "$adapters/out" | sort -u | tr '\n' ' ')" = 'cuda host rdma ' ] || { cat "$adapters/out"; exit 1; }
[ "$2" = 1 ] || fails 1 "$1" --check cuda
fails 2 "$1" --check rmda
[ "$(head -n 1 "$adapters/err")" = 'moe_info: --check: rmda is not one of all, cuda, host, rdma; did you mean rdma?' ] ||
  { cat "$adapters/err"; exit 1; }
# --explain: five lines, and shapes that cannot be.
"$1" --explain --backend host --ranks 16 --domain-size 8 --tokens 64 --layout rank-major >"$adapters/out"
[ "$(cut -d: -f1 "$adapters/out" | tr '\n' ' ')" = 'backend mode SMs memory transport ' ] || { cat "$adapters/out"; exit 1; }
grep -q 'between the 2 domains' "$adapters/out"
# The threshold of a tuning file, and a file that a job could not read either.
printf 'moecomm-tuning 1\nhost-domains rank-major 7\n' >"$adapters/tuning"
MOECOMM_TUNING=$adapters/tuning "$1" --explain --backend host --ranks 16 --domain-size 8 --layout rank-major \
  >"$adapters/out"
grep -q "^mode: HT, chosen: .* (host-domains rank-major of the tuning file $adapters/tuning)$" "$adapters/out" || { cat "$adapters/out"; exit 1; }
MOECOMM_TUNING=$adapters/none fails 1 "$1" --explain
[ "$(cat "$adapters/err")" = \
  "moe_info: MOECOMM_TUNING is $adapters/none, which cannot be read: No such file or directory" ] ||
  { cat "$adapters/err"; exit 1; }
fails 2 "$1" --explain --topk 9 --experts 8
grep -q '^moe_info: --topk 9 is more than --experts 8$' "$adapters/err"
fails 2 "$1" --tokens 9
grep -q -- '--explain' "$adapters/err"
fails 2 "$1" --explain --layout flt
grep -q 'did you mean flat' "$adapters/err"
# A setting may contain any bytes.
MOECOMM_NICS=$(printf 'a\377b') "$1" --json | python3 -c '
import json, sys
reason = json.load(sys.stdin)["rdma"]["reason"]
assert "a\N{REPLACEMENT CHARACTER}b" in reason, reason'
for option in '' --json --help; do
  # shellcheck disable=SC2086
  if said=$("$1" $option 2>&1 >/dev/full); then
    echo "lost output of moe_info $option is taken for success"
    exit 1
  fi
  [ "$said" = 'moe_info: standard output: No space left on device; its output is lost' ] ||
    { echo "moe_info $option says: $said"; exit 1; }
done
# A file of hwloc's name that is no library stands for a machine without hwloc. moe_info leaves out what hwloc knows and
# shows everything else.
mkdir "$adapters/lib"
: >"$adapters/lib/libhwloc.so.15"
LD_LIBRARY_PATH=$adapters/lib SYSFS_PATH=$adapters "$1" >"$adapters/out"
grep -q 'nothing more is known: libhwloc.so.15 cannot be loaded; install hwloc (Debian, Ubuntu: libhwloc15)$' "$adapters/out"
grep -q '^  host: available$' "$adapters/out"
grep -Eq '^Processor: .*, [0-9]+ threads$' "$adapters/out"
grep -Eq '^ *rail 0: mlx5_9, InfiniBand 400 Gb/sec' "$adapters/out"
echo 'all checks passed'
