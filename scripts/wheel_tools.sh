#!/bin/sh
# Fetches scikit-build-core and auditwheel from PyPI into build/wheel_tools, unless these versions are there. Prints the
# Python that has them. Exit status 77: they could not be fetched. scripts/wheel.sh calls it. Usage: wheel_tools.sh
set -eu
tools="scikit-build-core==1.1.2 auditwheel==6.8.2"
at=$(cd "$(dirname "$0")/.." && pwd)/build/wheel_tools
if [ "$(cat "$at/versions" 2>/dev/null)" != "$tools" ]; then
  rm -rf "$at"
  mkdir -p "$at"
  # The names are separate words.
  # shellcheck disable=SC2086
  if ! { python3 -m venv "$at" && env -u PIP_NO_INDEX "$at/bin/python" -m pip install --quiet $tools; } >"$at/log" 2>&1
  then
    tail -n 3 "$at/log" >&2
    echo "skipped: no wheel without $tools from PyPI" >&2
    exit 77
  fi
  echo "$tools" >"$at/versions"
fi
echo "$at/bin/python"
