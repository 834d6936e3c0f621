#!/bin/sh
# Fetches torch, numpy and pytest's runner of modules side by side from PyPI into build/torch for the tests of the Python
# packages: 6 GB, as there is no build of torch for CPUs on PyPI. With --jax it fetches jax too. scripts/test.sh starts it
# first and needs it last.
# Usage: fetch_torch.sh [--jax]   fetches those that are not there
#        fetch_torch.sh --wait    waits while that goes on, at most 15 minutes; fails if torch is not there
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

fetch() { # PACKAGE...
  nice python3 -m pip install --quiet --root-user-action=ignore --disable-pip-version-check --no-cache-dir \
    --no-compile --target "$to/site" "$@"
}

wanted=torch
[ "${1:-}" != --jax ] || wanted=jax
had=$(cat "$to/state" 2>/dev/null || true)
[ "$had" != fetched ] || [ ! -d "$to/site/$wanted" ] || exit 0
[ "$had" = fetched ] || rm -rf "$to"
mkdir -p "$to"
rm -f "$to/state"
echo $$ >"$to/pid"
state=failed
if [ "$had" = fetched ] || fetch torch numpy pytest pytest-xdist; then
  state=fetched
  [ "$wanted" != jax ] || fetch jax || echo "the tests of moecomm.jax will be skipped"
fi
echo "$state" >"$to/state"
