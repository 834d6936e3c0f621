#!/bin/sh
# Runs ibv_rc_pingpong of ibverbs-utils, a program that is not ours, between two processes over the fake device.
# Usage: pingpong_test.sh libfakemlx5.so. Exits with 77 if the program is not installed.
set -eu
command -v ibv_rc_pingpong > /dev/null || exit 77

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
mkdir "$folder/sockets"
export FAKE_MLX5_DIR="$folder/sockets" FAKE_MLX5_REPORT="$folder/report"
port=$((20000 + $$ % 10000))

pingpong() {
  LD_PRELOAD=$library timeout 60 ibv_rc_pingpong -d mlx5_0 -g 1 -p $port -n 100 "$@"
}

library=$1
pingpong > "$folder/server" 2>&1 &
server=$!
# A refused client would leave its device open, and the report would say so.
listens() { grep -q -E ":$(printf %04X $port) 0+:0000 0A" /proc/net/tcp /proc/net/tcp6; }
tries=0
until listens || [ $((tries += 1)) -gt 300 ]; do sleep 0.1; done
pingpong 127.0.0.1 > "$folder/client" 2>&1 || true
wait $server || true
cat "$folder/server" "$folder/client"
grep -q '100 iters' "$folder/server"
grep -q '100 iters' "$folder/client"
if [ -s "$folder/report" ]; then
  cat "$folder/report"
  exit 1
fi
if [ -n "$(ls "$folder/sockets")" ]; then
  echo "sockets are left"
  exit 1
fi
