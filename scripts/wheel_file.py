#!/usr/bin/env python3
"""Packs an installed tree as a wheel. scripts/wheel.sh calls it.

Usage: wheel_file.py PREFIX OUT_DIR
PREFIX is what `cmake --install --strip` made. What the wheel says about itself comes from python/pyproject.toml and
python/moecomm/_version.py. Its platform comes from the symbol versions that the binaries need. The same tree gives the
same bytes: names are sorted, and every file has the date of SOURCE_DATE_EPOCH.
"""
import base64
import hashlib
import os
import pathlib
import platform
import re
import subprocess
import sys
import time
import tomllib
import zipfile

ROOT = pathlib.Path(__file__).resolve().parents[1]
# Most MiB of a wheel without and with kernels, some more than they had in November 2026.
MIB_MAX = {False: 4, True: 36}
DATE = 315532800  # 1980-01-01, the first date of a zip file

# What every Linux of PEP 600 has. ld-linux is part of glibc.
SYSTEM_LIBRARIES = {"libc.so.6", "libm.so.6", "libdl.so.2", "librt.so.1", "libpthread.so.0", "libgcc_s.so.1",
                    "libstdc++.so.6", "ld-linux-x86-64.so.2", "ld-linux-aarch64.so.1"}
# The compiler's libraries have versions of their own. A system with the glibc on the right has at least these, as the
# policies of auditwheel say. Whatever is newer than the last one is refused.
COMPILER_SYMBOLS = {
    "GLIBCXX": [("3.4.19", 17), ("3.4.22", 24), ("3.4.24", 27), ("3.4.28", 31), ("3.4.29", 34), ("3.4.30", 35),
                ("3.4.33", 39)],
    "CXXABI": [("1.3.7", 17), ("1.3.10", 24), ("1.3.11", 27), ("1.3.12", 31), ("1.3.13", 34), ("1.3.15", 39)],
    "GCC": [("4.8.0", 17), ("7.0.0", 27), ("12.0.0", 35), ("14.0.0", 39)],
}


def numbers(version):
    return tuple(int(part) for part in version.split("."))


def readelf(path, *options):
    environment = {**os.environ, "LC_ALL": "C"}
    return subprocess.run(["readelf", "-W", *options, path], check=True, capture_output=True, text=True,
                          env=environment).stdout


def glibc_of(symbols, where):
    """The N of glibc 2.N on the oldest systems that have these symbol versions, which are (library, version)."""
    needed = 17  # the oldest that pip still knows well, manylinux2014
    for family, version in sorted(symbols):
        if not re.fullmatch(r"[0-9.]+", version):  # such as GLIBC_PRIVATE and GLIBC_ABI_DT_RELR
            sys.exit(f"wheel: {where} needs {family}_{version}, which has no place in the table of systems")
        if family == "GLIBC":
            needed = max(needed, numbers(version)[1])
            continue
        enough = [glibc for most, glibc in COMPILER_SYMBOLS[family] if numbers(version) <= numbers(most)]
        if not enough:
            sys.exit(f"wheel: {where} needs {family}_{version}, newer than what any system in the table has")
        needed = max(needed, enough[0])
    return needed


def platform_of(binaries):
    """The platform tag. Refuses binaries that would not run from inside the wheel."""
    own = {path.name for path in binaries}
    glibc = 0
    for path in binaries:
        dynamic = readelf(path, "-d")
        needs = set(re.findall(r"\(NEEDED\).*\[(.*)\]", dynamic))
        if strangers := needs - SYSTEM_LIBRARIES - own:
            sys.exit(f"wheel: {path.name} needs {', '.join(sorted(strangers))}, which many systems do not have")
        paths = re.findall(r"\((?:RUNPATH|RPATH)\).*\[(.*)\]", dynamic)
        if [path for path in paths if path != "$ORIGIN/../lib"] or (needs & own and not paths):
            sys.exit(f"wheel: {path.name} looks for libraries in {paths}, not in $ORIGIN/../lib")
        symbols = set(re.findall(r"Name: (GLIBC|GLIBCXX|CXXABI|GCC)_(\S+)", readelf(path, "-V")))
        glibc = max(glibc, glibc_of(symbols, path.name))
    return f"manylinux_2_{glibc}_{platform.machine()}"


def contents(prefix):
    """The files of the package, {name in the wheel: (bytes, executable)}, and the binaries among them."""
    library = next(prefix.rglob("libmoecomm.so.*.*.*"))
    soname = re.search(r"\(SONAME\).*\[(.*)\]", readelf(library, "-d")).group(1)
    tools = sorted((prefix / "bin").iterdir())
    files = {str(path.relative_to(ROOT / "python")): (path.read_bytes(), False)
             for path in (ROOT / "python/moecomm").rglob("*") if path.suffix == ".py" or path.name == "py.typed"}
    files[f"moecomm/lib/{soname}"] = (library.read_bytes(), True)
    # A wheel has no links. For the linker a text does the same.
    files["moecomm/lib/libmoecomm.so"] = (f"INPUT({soname})\n".encode(), False)
    files["moecomm/lib/pkgconfig/moecomm.pc"] = ((library.parent / "pkgconfig/moecomm.pc").read_bytes(), False)
    files |= {f"moecomm/{header.relative_to(prefix)}": (header.read_bytes(), False)
              for header in (prefix / "include").rglob("*") if header.is_file()}
    files |= {f"moecomm/bin/{tool.name}": (tool.read_bytes(), True) for tool in tools}
    return files, [tool.name for tool in tools], [library.parent / soname, *tools]


def about(project, version, tag, tools):
    """The files of the .dist-info folder, without RECORD."""
    metadata = [
        ("Metadata-Version", "2.4"), ("Name", project["name"]), ("Version", version),
        ("Summary", project["description"]), ("License-Expression", "Apache-2.0"), ("License-File", "LICENSE"),
        ("License-File", "third_party.txt"), ("Requires-Python", project["requires-python"]),
    ]
    wheel = [("Wheel-Version", "1.0"), ("Generator", f"moecomm {version}"), ("Root-Is-Purelib", "false"), ("Tag", tag)]
    lines = {name: "".join(f"{key}: {value}\n" for key, value in fields)
             for name, fields in (("METADATA", metadata), ("WHEEL", wheel))}
    groups = {"console_scripts": {tool: "moecomm._tools:run" for tool in tools}, **project["entry-points"]}
    lines["entry_points.txt"] = "\n".join(
        f"[{group}]\n" + "".join(f"{name} = {place}\n" for name, place in sorted(entries.items()))
        for group, entries in sorted(groups.items()))
    lines["licenses/LICENSE"] = (ROOT / "LICENSE").read_text()
    lines["licenses/third_party.txt"] = (ROOT / "packaging/third_party.txt").read_text()
    folder = f"{project['name']}-{version}.dist-info"
    return {f"{folder}/{name}": (text.encode(), False) for name, text in lines.items()}, f"{folder}/RECORD"


def record(files, own_name):
    rows = []
    for name, (data, _) in sorted(files.items()):
        digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
        rows.append(f"{name},sha256={digest},{len(data)}\n")
    return ("".join(rows) + f"{own_name},,\n").encode()


def write(path, files):
    date = time.gmtime(max(DATE, int(os.environ.get("SOURCE_DATE_EPOCH", DATE))))[:6]
    # RECORD and its neighbours come last, as the format recommends.
    with zipfile.ZipFile(path, "w") as archive:
        for name in sorted(files, key=lambda name: (".dist-info/" in name, name)):
            data, executable = files[name]
            entry = zipfile.ZipInfo(name, date)
            entry.create_system = 3  # Unix, whose file modes follow
            entry.external_attr = (0o100755 if executable else 0o100644) << 16
            entry.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(entry, data, compresslevel=9)


def refuse_growth(path, kernels):
    """The size in MiB. A wheel that is too large is removed, so that nobody takes it."""
    mib = path.stat().st_size / 2**20
    if mib > MIB_MAX[kernels]:
        path.unlink()
        sys.exit(f"wheel: {path} has {mib:.1f} MiB, more than {MIB_MAX[kernels]}; if that is right, change MIB_MAX")
    return mib


def main(prefix, out):
    project = tomllib.loads((ROOT / "python/pyproject.toml").read_text())["project"]
    version = re.search(r'^VERSION = "(.*)"', (ROOT / "python/moecomm/_version.py").read_text(), re.M).group(1)
    files, tools, binaries = contents(pathlib.Path(prefix))
    tag = f"py3-none-{platform_of(binaries)}"
    more, record_name = about(project, version, tag, tools)
    files |= more
    files[record_name] = (record(files, record_name), False)
    path = pathlib.Path(out, f"{project['name']}-{version}-{tag}.whl")
    write(path, files)
    kernels = ".nv_fatbin" in readelf(binaries[0], "-S")
    mib = refuse_growth(path, kernels)
    print(f"{path}\n{mib:.1f} MiB {'with' if kernels else 'without'} kernels, {len(files)} files")


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    main(*sys.argv[1:])
