#!/usr/bin/env python3
"""Checks the house rules that no compiler checks: sizes, include direction, banned words. See CONTRIBUTING.md.

Usage: tidy.py [FILE...]   (no FILE: all files that git knows or would add)
Prints one line per violation, and exits with status 1 if there is any.
"""
import os
import re
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
FILE_LINES = 600
FUNCTION_LINES = 70

# Exceptions: "path" or "path:function", with a reason. Short, and to be kept short.
LONG_FILES = {"include/moecomm.h"}  # the whole interface, most of it comments
LONG_FUNCTIONS = set()

# A folder of src includes from itself and from folders with a smaller number.
LAYERS = {"base": 0, "bootstrap": 1, "device": 2, "topology": 2, "backend": 3, "transport": 4, "comm": 5, "api": 6,
          "tools": 7}

# The rooms of a folder, with the same rule: rooms with the same number do not know each other. Files beside the rooms may
# be included by all of them.
ROOMS = {"device": {"queue": 0, "view": 1, "rows": 2, "policy": 3, "protocol": 4, "kernels": 5},
         "comm": {"config": 0, "recorder": 1, "communicator": 2, "handle": 3},
         "device/protocol": {"core": 0, "route": 1, "ht": 1, "combine": 1, "report": 1, "ll": 2},
         "bootstrap": {"net": 0, "group": 1}, "transport": {"tcp": 0, "rdma": 0, "verbs": 1, "ibgda": 2}}
# Further includes that are not allowed: a pattern of paths, one of includes, and the reason.
NOT_FROM = [
    (r"src/(?!device/)", r"device/protocol/", "protocols are reached by the steps of device/kernels"),
    (r"src/transport/(verbs|ibgda)/", r"transport/tcp/", "a transport knows no other"),
    (r"src/device/view/", r"device/queue/mlx5/", "a view knows no adapter, which half of the files would then parse"),
]

CUDA_FILES = r"src/device/(policy/cuda/\w+|rows/(fp8|quotients))\.h"
POLICIES = CUDA_FILES + r"|src/device/(policy/host/\w+|view/flag)\.h"

# Pattern, where (a pattern of paths), where not, reason.
BANNED = [
    (r"\bgetenv\s*\(", r"src/", r"src/comm/config/config\.cc|src/tools/", "the environment is read in src/comm/config/config.cc only"),
    (r"(?<![\w.>])(std::|::)?(v?f?printf|puts|fputs|putchar)\s*\(|\bstd::(cout|cerr)\b|\bfmt::print\b", r"src/",
     r"src/tools/|src/base/log\.cc", "the library does not print; write to the Log"),
    (r"(std::|[^\w\s]\s*::|[;{}()]\s*)(exit|_exit|_Exit|quick_exit|abort|terminate)\s*\(|\b__trap\s*\(|\bassert\s*\(", r"src/",
     r"src/tools/", "the library does not end the process or trap; throw Error or set the failure word"),
    (r"\bcudaMalloc\w*\s*\(|\bcudaFree\w*\s*\(|\bcudaHostAlloc\s*\(", r"src/", r"src/\w+/cuda_\w+\.(h|cc|cu)",
     "memory belongs to an owner class (a cuda_* file)"),
    (r"\bvolatile\b", r"src/", CUDA_FILES, "volatile orders nothing; use a Flag"),
    (r"\b(__)?asm(__)?\b", r"src/", CUDA_FILES, "instructions are spelled in src/device/policy/cuda, rows/fp8.h and rows/quotients.h only"),
    (r"\b__CUDA_ARCH__\b", r"src/", CUDA_FILES + r"|src/device/(kernels/step_kernels|view/steps)\.h", "protocol files do not know the machine"),
    (r"\bmemory_order|\batomic_thread_fence\b", r"src/(device|api)/", POLICIES, "order is named by policy operations only"),
    (r"\bif constexpr\s*\(\s*Warp::", r"src/device/", POLICIES, "protocol code is the same for every policy"),
    (r"\bgoto\b", r"(src|tests|perf|examples)/", None, "owners unwind; there is no goto"),
    (r"\bthread_local\b", r"src/", r"src/api/", "everything belongs to a communicator"),
    (r"\busing namespace\b", r"(src|perf)/", None, "names are written out"),
    (r"(?<![\w.>])(std::)?malloc\s*\(|(?<![\w.>])free\s*\(", r"src/", None, "every resource has an owner"),
    (r"\benum class \w+[^{;]*\{[^}=]*?(?<=[{,\s])(k?[A-Z]\w*)", r"(src|perf|tests|examples|include)/", None,
     "enumerators of an enum class are in camelCase; those of a plain enum are constants, kLikeThis"),
    (r"(?<=[;{}])\n\s+[\w.>\[\]-]+ = (?:[^;{}()]|\([^()]*\))*?, [\w.>\[\]-]+ = [^;]*;",
     r"(src|perf|tests|examples|include)/", None, "one assignment per statement"),
]
# Banned in comments too.
BANNED_WORDS = [(r"\b(TODO|FIXME|XXX|HACK)\b", "an open point is an issue, not a comment")]

TEXT = re.compile(r"\.(h|hpp|cuh|cc|cu|c|js|py|sh|md|txt|cmake|json|in|map|yml|yaml)$|(^|/)(CMakeLists\.txt|run|LICENSE)$|"
                  r"(^|/)\.clang-(format|tidy)$")
CODE = re.compile(r"\.(h|hpp|cuh|cc|cu|c)$")
NOT_A_FUNCTION = re.compile(r"\b(namespace|class|struct|union|enum|extern)\b(?![^{]*\)\s*(const|noexcept|override|->.*)?\s*$)")


def files_of_project():
    command = ["git", "-C", ROOT, "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listing = subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout.decode()
    return sorted(name for name in listing.split("\0") if name and os.path.isfile(os.path.join(ROOT, name)))


def without_comments_and_texts(text):
    """The same lines, with comments, strings and characters replaced by blanks."""
    pattern = re.compile(r'//[^\n]*|/\*.*?\*/|R"\((.*?)\)"|"(?:\\.|[^"\\\n])*"|(?<![0-9a-fA-F])\'(?:\\.|[^\'\\\n])+\'', re.S)
    return pattern.sub(lambda match: re.sub(r"[^\n]", " ", match.group()), text)


def functions(code):
    """(name, first line, last line) of every outermost block that is a function body."""
    code = re.sub(r"^[ \t]*#.*(\\\n.*)*$", lambda m: re.sub(r"[^\n]", " ", m.group()), code, flags=re.M)
    found, depth, opened, start, begin = [], [], None, 0, 0
    for match in re.finditer(r"[{};]", code):
        head = code[start:match.start()]
        if not re.match(r"\s*(,|$)", head):  # otherwise it goes on after a brace: A() : a_{1}, b_{2} {
            begin = match.start() - len(head.lstrip())
        if match.group() == "{":
            head = code[begin:match.start()]
            is_table = re.match(r"[^()]*=\s*(\{|$)", head)
            is_body = ")" in head and not is_table and not NOT_A_FUNCTION.search(head)
            depth.append(begin)
            if is_body and opened is None:
                name = re.findall(r"([\w:~]+)\s*\(", head)
                opened = (len(depth), name[0] if name else "?", begin)
        elif match.group() == "}" and depth:
            if opened is not None and opened[0] == len(depth):
                first, last = code.count("\n", 0, opened[2]) + 1, code.count("\n", 0, match.end()) + 1
                found.append((opened[1], first, last))
                opened = None
            begin = depth.pop()
        start = match.end()
    return found


def check_code(path, text, complain):
    code = without_comments_and_texts(text)
    for pattern, where, where_not, why in BANNED:
        if not re.match(where, path) or (where_not and re.match(where_not, path)):
            continue
        for match in re.finditer(pattern, code):
            complain(path, code.count("\n", 0, match.start()) + 1, f'"{match.group().strip()}": {why}')
    for name, first, last in functions(code):
        if last - first + 1 > FUNCTION_LINES and f"{path}:{name}" not in LONG_FUNCTIONS:
            complain(path, first, f"{name} has {last - first + 1} lines, more than {FUNCTION_LINES}")
    folder = re.match(r"src/(\w+)/", path)
    if folder:
        check_includes(path, folder.group(1), text, complain)
    if path.startswith("src/") and re.search(r"\.(h|cuh)$", path) and not text.startswith("//"):
        complain(path, 1, "a header starts with a comment that says what it is and who calls it")


def room_of(path, floor):
    """The room of `floor` in which `path` is; None: it is elsewhere, or beside the rooms."""
    inside = re.match(re.escape(floor) + r"/(\w+)/", path)
    return inside and inside.group(1)


def check_includes(path, folder, text, complain):
    if folder not in LAYERS:
        complain(path, 1, f"src/{folder} has no layer in scripts/tidy.py")
        return
    for match in re.finditer(r'^#include "((\w+)/[^"]*)"', text, re.M):
        line = text.count("\n", 0, match.start()) + 1
        included, other = match.groups()
        if other != folder and LAYERS.get(other, 99) >= LAYERS[folder]:
            complain(path, line, f"src/{folder} must not include from {other}/")
        for floor, rooms in ROOMS.items():
            room, other_room = room_of(path, f"src/{floor}"), room_of(included, floor)
            if room != other_room and rooms.get(other_room, -1) >= rooms.get(room, 99):
                complain(path, line, f"src/{floor}/{room} must not include from {floor}/{other_room}/")
        for where, what, why in NOT_FROM:
            if re.match(where, path) and re.match(what, included):
                complain(path, line, f"{included}: {why}")


def check_file(path, complain):
    with open(os.path.join(ROOT, path), "rb") as file:
        raw = file.read()
    for number, line in enumerate(raw.split(b"\n"), 1):
        if any(byte > 126 or (byte < 32 and byte not in (9, 12)) for byte in line):
            complain(path, number, "a character that is not printable ASCII")
        if line.endswith((b" ", b"\t")) and not re.search(r"(\.md|\.sh|^LICENSE)$", path):
            complain(path, number, "blanks at the end of the line")
    text = raw.decode("ascii", "replace")
    if text and not text.endswith("\n"):
        complain(path, text.count("\n") + 1, "no line end at the end of the file")
    lines = text.count("\n")
    if lines > FILE_LINES and path not in LONG_FILES and not re.search(r"(^LICENSE|\.md|\.json)$", path):
        complain(path, lines, f"{lines} lines, more than {FILE_LINES}")
    for pattern, why in BANNED_WORDS:
        for match in re.finditer(pattern, text):
            if path != "scripts/tidy.py":
                complain(path, text.count("\n", 0, match.start()) + 1, f'"{match.group()}": {why}')
    if CODE.search(path):
        check_code(path, text, complain)


def main():
    violations = []
    names = sys.argv[1:] or files_of_project()
    checked = [os.path.relpath(os.path.abspath(n), ROOT) if sys.argv[1:] else n for n in names]
    for path in checked:
        if TEXT.search(path):
            check_file(path, lambda p, line, what: violations.append(f"{p}:{line}: {what}"))
    print("\n".join(violations) if violations else f"tidy: {len(checked)} files, no violation")
    return 1 if violations else 0


if __name__ == "__main__":
    sys.exit(main())
