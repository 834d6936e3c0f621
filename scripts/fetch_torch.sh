#!/bin/sh
# Fetches torch and numpy from PyPI into build/torch for the tests of moecomm.torch and moecomm.deep_ep: 5.5 GB, as there
# is no build for CPUs on PyPI. scripts/test.sh starts it first and needs it last.
# Usage: fetch_torch.sh          fetches them unless they are there
#        fetch_torch.sh --wait   waits while that goes on, at most 15 minutes; fails if they are not there
set -eu
cd "$(dirname "$0")/.."
to=build/torch

if [ "${1:-}" = --wait ]; then
  left=900
  while [ ! -e "$to/state" ] && kill -0 "$(cat "$to/pid" 2>/dev/null)" 2>/dev/null && [ "$left" -gt 0 ]; do
    sleep 1 && left=$((left - 1))
  done
  [ "$(cat "$to/state" 2>/dev/null)" = fetched ]
  exit
fi

[ "$(cat "$to/state" 2>/dev/null)" != fetched ] || exit 0
rm -rf "$to"
mkdir -p "$to"
echo $$ >"$to/pid"
state=failed
if nice python3 -m pip install --quiet --root-user-action=ignore --disable-pip-version-check --no-cache-dir \
  --no-compile --target "$to/site" torch numpy; then
  state=fetched
fi
echo "$state" >"$to/state"
