#!/bin/sh
# moe_info answers on any machine, as text and as JSON. Usage: moe_info_test.sh PATH_OF_MOE_INFO
set -eu
text=$("$1")
echo "$text" | grep -q '^moecomm [0-9]*\.[0-9]*\.[0-9]*$'
echo "$text" | grep -q '^  host: available$'
echo "$text" | grep -Eq '^  cuda: .+'
echo "$text" | grep -q 'NUMA node'
"$1" --json | python3 -c '
import json, sys
report = json.load(sys.stdin)
assert report["backends"]["host"]["available"]
cuda = report["backends"]["cuda"]
assert cuda["available"] or cuda["reason"], cuda
assert report["machine"]["threads"] >= 1'
echo 'all checks passed'
