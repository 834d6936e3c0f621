#!/bin/sh
# Formats all C, C++ and CUDA files as `scripts/test.sh format` requires.
set -eu
cd "$(dirname "$0")/.."
git ls-files -z --cached --others --exclude-standard -- '*.h' '*.hpp' '*.cuh' '*.cc' '*.c' '*.cu' |
  xargs -0 clang-format-14 -i
