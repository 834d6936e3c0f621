#!/bin/bash
# Builds the documents as a static site, with a page for each function and type of the C interface, for each class and
# function of the C++ headers, for each part of the Python package, and for each program, and checks its links.
# Needs doxygen and python3-venv, and PyPI the first time. All else that it needs is in scripts/site/requirements.txt
# and comes into build/site/venv. Warnings are errors.
# Usage: scripts/site.sh [--build DIR] [OUT]
#   DIR: a build or an installed copy, which has the programs. Else the newest build of this checkout; if there is none,
#   programs get no pages
#   OUT: a new or empty folder, or one of an earlier run; else build/site/html
# Exit status 77: it cannot run here, and says why.
#   --help: prints this
set -euo pipefail
build=()
for argument in "$@"; do
  case $argument in
    -h | --help)
      sed -n '2,/^set /{s/^# \{0,1\}//p}' "$0"
      exit 0
      ;;
  esac
done
if [ "${1:-}" = --build ]; then
  [ $# -ge 2 ] || { echo "site: --build needs a folder" >&2; exit 2; }
  build=("$(realpath -m "$2")")
  shift 2
fi
case ${1:-} in
  -*) echo "site: unknown option $1; see --help" >&2; exit 2 ;;
esac
[ $# -le 1 ] || { echo "site: one folder at most is expected; see --help" >&2; exit 2; }
out=${1:+$(realpath -m "$1")}
cd "$(dirname "$0")/.."
work=$PWD/build/site
parts=$PWD/scripts/site
skipped=77

cannot() { echo "site: $*" >&2; exit $skipped; }

# The packages, exactly those of the list. A failure with a working index is one of the list, and no reason to skip.
fetch_packages() {
  local wanted
  python3 -c 'import sys; sys.exit(sys.version_info < (3, 11))' || cannot "Python is older than 3.11"
  wanted=$(python3 --version; cat "$parts/requirements.txt")
  [ "$wanted" != "$(cat "$work/venv/wanted" 2>/dev/null)" ] || return 0
  rm -rf "$work/venv"
  python3 -m venv "$work/venv" 2>"$work/venv.log" || cannot "no python3-venv"
  local pip=("$work/venv/bin/python" -m pip --disable-pip-version-check --quiet)
  if ! "${pip[@]}" install --no-deps --requirement "$parts/requirements.txt" 2>"$work/pip.log"; then
    "${pip[@]}" download --no-deps --no-cache-dir --dest "$work/probe" alabaster >/dev/null 2>&1 ||
      cannot "PyPI cannot be reached"
    cat "$work/pip.log" >&2
    return 1
  fi
  "${pip[@]}" check
  echo "$wanted" >"$work/venv/wanted"
}

if [ -n "$out" ] && [ -d "$out" ] && [ -n "$(ls -A "$out")" ] && [ ! -e "$out/objects.inv" ]; then
  echo "site: $out is neither empty nor a site" >&2
  exit 2
fi
command -v doxygen >/dev/null || cannot "no doxygen"
mkdir -p "$work"
fetch_packages
rm -rf "$work/source" "$work/xml" "$work/cpp" "$work/html" "$work/doctrees"
mkdir -p "$work/source/pages"
export PYTHONDONTWRITEBYTECODE=1
python3 "$parts/make_pages.py" "$work" "$work/source/pages" "${build[@]}"
cp -r "$parts/conf.py" "$parts/static" "$work/source/"
"$work/venv/bin/sphinx-build" --fail-on-warning --keep-going --quiet --jobs "${JOBS:-$(nproc)}" -b html \
  -c "$work/source" -d "$work/doctrees" "$work/source/pages" "$work/html"
python3 "$parts/links.py" "$work/html"
if [ -n "$out" ]; then
  rm -rf "$out"
  mkdir -p "$(dirname "$out")"
  cp -r "$work/html" "$out"
else
  out=$work/html
fi
echo "site: $out/index.html"
