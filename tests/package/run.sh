#!/bin/sh
# Installs a build tree to a fresh prefix, moves the prefix, and uses it as a user would: from a C and a C++ program,
# through find_package and through pkg-config, and from each header alone.
# Usage: run.sh BUILD_DIR [C_COMPILER CXX_COMPILER]
set -eu
build=$(cd "$1" && pwd)
cc=${2:-cc}
cxx=${3:-c++}
here=$(cd "$(dirname "$0")" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

step() { echo "package: $*"; }

step "install, then move the prefix"
cmake --install "$build" --prefix "$work/first" >/dev/null
mv "$work/first" "$work/prefix"
prefix=$work/prefix
library=$(find "$prefix" -name libmoecomm.so -not -path "*/python/*")
[ -n "$library" ] || { echo "libmoecomm.so is not installed"; exit 1; }

step "each header alone, as C99, C++17 and C++20"
for header in "$prefix"/include/*.h; do
  echo "#include \"$header\"" >"$work/alone.c"
  cp "$work/alone.c" "$work/alone.cc"
  "$cc" -std=c99 -pedantic -Wall -Wextra -Werror -fsyntax-only "$work/alone.c"
  "$cxx" -std=c++17 -pedantic -Wall -Wextra -Werror -fsyntax-only "$work/alone.cc"
done
for header in "$prefix"/include/*.hpp "$prefix"/include/moecomm/*.hpp; do
  echo "#include \"$header\"" >"$work/alone.cc"
  for standard in 17 20; do
    "$cxx" -std=c++$standard -pedantic -Wall -Wextra -Wconversion -Wshadow -Werror -I"$prefix/include" -fsyntax-only "$work/alone.cc"
  done
done
# The C++ headers call every function of the C interface, and define nothing but their guards.
while read -r function; do
  grep -qw "$function" "$prefix"/include/moecomm/*.hpp || { echo "moecomm.hpp lacks $function"; exit 1; }
done <"$here/../abi/exports.txt"
python3 - "$prefix/include" <<'END'
import pathlib, re, sys
c, cpp = (pathlib.Path(sys.argv[1], name).read_text() for name in ("moecomm.h", "moecomm/arguments.hpp"))
c = re.sub(r"/\*.*?\*/", "", c, flags=re.S)
paths = dict(DispatchArgs="", CombineArgs="", Cast="cast.", Describe="describe.", Ready="ready.", Grads="grads.")
arrays = {
    paths[struct] + name
    for struct, body in re.findall(r"typedef struct moe(\w+) \{(.*?)\n\}", c, re.S)
    if struct in paths
    for name in re.findall(r"(?:void|float|int\d+_t)\s*\*\s*(\w+);", body)
}
missing = sorted(name for name in arrays if f'require("args.{name}"' not in cpp)
sys.exit(f"moecomm.hpp does not check the arrays {missing} of {len(arrays)}" if missing or len(arrays) < 20 else None)
END
macros=$(grep -h '^# *define' "$prefix"/include/*.hpp "$prefix"/include/moecomm/*.hpp | grep -v '^#define MOECOMM_[A-Z]*_\?HPP_$' || true)
[ -z "$macros" ] || { echo "the C++ header defines $macros"; exit 1; }

step "find_package"
cmake -S "$here" -B "$work/consumer" -DCMAKE_PREFIX_PATH="$prefix" -DCMAKE_C_COMPILER="$cc" \
  -DCMAKE_CXX_COMPILER="$cxx" >"$work/log" || { cat "$work/log"; exit 1; }
cmake --build "$work/consumer" >"$work/log" || { cat "$work/log"; exit 1; }
"$work/consumer/consumer_c"
"$work/consumer/consumer_cpp"
"$work/consumer/consumer_hpp"
if [ -e "$(dirname "$library")/libmoecomm.a" ]; then
  step "the static library"
  "$work/consumer/consumer_static"
  ! objdump -p "$work/consumer/consumer_static" | grep -E 'NEEDED *lib(moecomm|sodium)' || { echo "it is not static"; exit 1; }
fi

step "add_subdirectory: all is the library alone"
mkdir "$work/outer"
cat >"$work/outer/CMakeLists.txt" <<'END'
cmake_minimum_required(VERSION 3.25)
project(outer LANGUAGES C CXX)
add_subdirectory(${MOECOMM_SOURCE} moecomm)
END
cmake -G Ninja -S "$work/outer" -B "$work/sub" -DMOECOMM_SOURCE="$(cd "$here/../.." && pwd)" -DMOECOMM_CUDA=OFF \
  >"$work/log" || { cat "$work/log"; exit 1; }
ninja -C "$work/sub" -n -v all >"$work/log" || { cat "$work/log"; exit 1; }
grep -q ' -o moecomm/src/libmoecomm.so' "$work/log" || { echo "no library"; exit 1; }
! grep -Eo ' -o moecomm/(src|perf|tests)/[a-z_]+ ' "$work/log" || { echo "all has programs"; exit 1; }

# The minor version may change the ABI before 1.0. From 1.0 on, only the major version may.
series=0.1
step "the library's name and find_package promise what the ABI does: $series"
soname=$(objdump -p "$library" | awk '$1 == "SONAME" { print $2 }')
[ "$soname" = "libmoecomm.so.$series" ] || { echo "the SONAME is $soname"; exit 1; }
[ -e "$(dirname "$library")/$soname" ] || { echo "$soname is not installed"; exit 1; }
objdump -p "$work/consumer/consumer_c" | grep -q "NEEDED *libmoecomm.so.$series\$" || { echo "the program needs another"; exit 1; }
for wanted in 0.1 0.1.0; do
  cmake -S "$here" -B "$work/other" -DCMAKE_PREFIX_PATH="$prefix" -DMOECOMM_WANTED=$wanted >"$work/log" 2>&1 ||
    { echo "version $wanted was refused"; cat "$work/log"; exit 1; }
done
for wanted in 0.0 0.2 0.1.99 1.0 1000; do
  cmake -S "$here" -B "$work/other" -DCMAKE_PREFIX_PATH="$prefix" -DMOECOMM_WANTED=$wanted >"$work/log" 2>&1 &&
    { echo "version $wanted was accepted"; exit 1; }
  grep -q "requested version \"$wanted\"" "$work/log" || { cat "$work/log"; exit 1; }
done

step "pkg-config"
PKG_CONFIG_PATH=$(dirname "$library")/pkgconfig
export PKG_CONFIG_PATH
flags=$(pkg-config --cflags --libs moecomm)
version=$(pkg-config --modversion moecomm)
# The words of $flags are separate arguments.
# shellcheck disable=SC2086
"$cc" -std=c99 -Wall -Wextra -Werror "$here/consumer.c" $flags -o "$work/pc_c"
# shellcheck disable=SC2086
"$cxx" -std=c++17 -Wall -Wextra -Werror "$here/consumer.cc" $flags -o "$work/pc_cpp"
# shellcheck disable=SC2086
"$cxx" -std=c++17 -Wall -Wextra -Werror "$here/consumer_hpp.cc" $flags -o "$work/pc_hpp"
LD_LIBRARY_PATH=$(dirname "$library") "$work/pc_c"
LD_LIBRARY_PATH=$(dirname "$library") "$work/pc_cpp"
LD_LIBRARY_PATH=$(dirname "$library") "$work/pc_hpp"
if [ -e "$(dirname "$library")/libmoecomm.a" ]; then
  mkdir "$work/archive" # where the linker finds no libmoecomm.so before it
  ln -s "$(dirname "$library")/libmoecomm.a" "$work/archive"
  flags=$(pkg-config --static --cflags --libs moecomm)
  # shellcheck disable=SC2086
  "$cc" -std=c99 "$here/consumer.c" -L"$work/archive" $flags -o "$work/pc_static"
  "$work/pc_static"
  ! objdump -p "$work/pc_static" | grep -E 'NEEDED *lib(moecomm|sodium)' || { echo "pkg-config --static is not static"; exit 1; }
fi

step "tools"
for tool in "$prefix"/bin/*; do
  [ -e "$tool" ] || continue
  "$tool" --help >"$work/help" || { echo "$tool --help failed"; exit 1; }
  name=$(basename "$tool")
  for section in 'EXIT STATUS' EXAMPLES; do
    grep -q "^.SH $section\$" "$prefix/share/man/man1/$name.1" || { echo "the manual page of $name has no $section"; exit 1; }
  done
  completion=$prefix/share/bash-completion/completions/$name
  for option in $(sed -n 's/^  \(-[^ {]*\).*/\1/p' "$work/help" | tr , ' '); do
    sed 's/\\-/-/g' "$prefix/share/man/man1/$name.1" | grep -Eq "^.fB(.*, )?$option(, .*)?.fR" ||
      { echo "the manual page of $name does not have $option"; exit 1; }
    grep -Eq -- "-W \"(.* )?$option( .*)?\"" "$completion" || { echo "$name: bash does not complete $option"; exit 1; }
    grep -Eq -- "\)$option\[" "$prefix/share/zsh/site-functions/_$name" || { echo "$name: zsh does not complete $option"; exit 1; }
  done
done
"$here/completion_test.sh" "$prefix/share/bash-completion/completions/moerun"

step "documents, licence, examples"
documents=$(find "$prefix/share" -path '*doc/moecomm/LICENSE' -exec dirname {} \;)
for file in README.md CHANGELOG.md LICENSE docs/reference/tuning.md docs/guide/launchers.md docs/decisions/README.md; do
  cmp "$here/../../$file" "$documents/$file" || { echo "$file is not installed"; exit 1; }
done
"$cc" -std=c99 -I"$prefix/include" "$prefix/share/moecomm/examples/minimal.c" -L"$(dirname "$library")" -lmoecomm -o "$work/minimal"
LD_LIBRARY_PATH=$(dirname "$library") "$prefix/bin/moerun" -n 2 "$work/minimal" >/dev/null
# The guide shows lines of this example.
python3 - "$documents/docs/guide/cpp.md" "$prefix/share/moecomm/examples/moe_layer.cc" <<'END'
import pathlib, re, sys
guide, example = (pathlib.Path(path).read_text() for path in sys.argv[1:])
shown = re.findall(r"```cpp\n(.*?)```", guide, re.S)
sys.exit(None if shown and all(text in example for text in shown) else "cpp.md shows something else than moe_layer.cc")
END
"$cxx" -std=c++17 -I"$prefix/include" "$prefix/share/moecomm/examples/moe_layer.cc" -L"$(dirname "$library")" -lmoecomm -o "$work/moe_layer"
LD_LIBRARY_PATH=$(dirname "$library") "$prefix/bin/moerun" -n 2 "$work/moe_layer" >/dev/null

rust=$prefix/share/moecomm/examples/rust
if command -v cargo >/dev/null && command -v bindgen >/dev/null && command -v pkg-config >/dev/null; then
  step "the Rust example, of whose six ranks one gets no rows"
  PKG_CONFIG_PATH=$(dirname "$(find "$prefix" -name moecomm.pc)") CARGO_TARGET_DIR=$work/rust \
    cargo build --offline --locked --manifest-path "$rust/Cargo.toml" >"$work/log" 2>&1 || { cat "$work/log"; exit 1; }
  LD_LIBRARY_PATH=$(dirname "$library") "$prefix/bin/moerun" -n 6 "$work/rust/debug/moecomm-example" >"$work/log" 2>&1 ||
    { cat "$work/log"; exit 1; }
  [ "$(grep -c ' rows came, 0 tokens are wrong$' "$work/log")" = 6 ] || { cat "$work/log"; exit 1; }
else
  [ -f "$rust/build.rs" ] || { echo "the Rust example is not installed"; exit 1; }
  step "the Rust example: skipped, because cargo, bindgen or pkg-config is missing"
fi

step "the Python package, where it lies and on PYTHONPATH"
[ -z "$(find "$prefix" -name '*.pyc')" ] || { echo "byte code is installed"; exit 1; }
cd "$work" # outside the source tree
found=$(env -u MOECOMM_LIBRARY -u LD_LIBRARY_PATH PYTHONDONTWRITEBYTECODE=1 PYTHONPATH="$prefix/share/moecomm/python" \
  python3 -c 'import moecomm; print(moecomm.__file__); print(".".join(map(str, moecomm.version())))' 2>"$work/log") ||
  { cat "$work/log"; exit 1; }
[ "$found" = "$prefix/share/moecomm/python/moecomm/__init__.py
$version" ] || { echo "Python found $found, not version $version in the prefix"; exit 1; }
if python3 -c 'import numpy' 2>/dev/null; then
  env -u MOECOMM_LIBRARY PYTHONDONTWRITEBYTECODE=1 "$prefix/bin/moerun" -n 2 python3 "$prefix/share/moecomm/examples/moe_layer.py" \
    >"$work/log" 2>&1 || { cat "$work/log"; exit 1; }
fi
step "version $version: all right"
