#!/usr/bin/env python3
"""Makes the Markdown pages of which Sphinx makes the site: the repository's documents, and the pages of the C interface,
of the C++ headers, of the Python package and of the programs.

Usage: make_pages.py WORK PAGES [BUILD]   (scripts/site.sh calls it)
WORK and PAGES are folders, for what Doxygen makes and for the pages. BUILD is a build or an installed copy with the
programs; without it, those that this checkout has built last, and if there are none they get no pages.
"""
import os
import pathlib
import shutil
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT / "scripts"))
import cpp_interface  # noqa: E402
import cpp_pages  # noqa: E402
import documents  # noqa: E402
import interface  # noqa: E402
import interface_pages  # noqa: E402
import program_pages  # noqa: E402
import python_interface  # noqa: E402
import python_pages  # noqa: E402

HEADER = "include/moecomm.h"
CPP_HEADER = "include/moecomm.hpp"
PACKAGE = "python/moecomm"
CPP_PARTS = [f"include/moecomm/{name}.hpp" for name in ("communicator", "handle", "arguments", "basics")]


def files_of_project(root):
    command = ["git", "-C", str(root), "-c", "safe.directory=*", "ls-files", "-z", "--cached", "--others",
               "--exclude-standard"]
    listing = subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout.decode()
    return sorted(path for path in listing.split("\0") if path and (root / path).is_file())


def pages_of_headers(work):
    """The pages of the C interface and of the C++ headers, and what stands for names of the former."""
    of_c = interface.read(HEADER, work)
    names = interface_pages.links(of_c, "../interface/")
    read = []
    for path in CPP_PARTS:
        place = work / "cpp" / pathlib.Path(path).stem
        place.mkdir(parents=True)
        read.append(cpp_interface.read(path, place))
    about = cpp_interface.about_of(CPP_HEADER)
    return interface_pages.pages(of_c, HEADER) | cpp_pages.pages(about, CPP_HEADER, read, names), names


def pages_of_programs(build, names):
    programs = program_pages.programs_of(build) if build else program_pages.newest_build(ROOT)
    if build and not programs:
        sys.exit(f"site: {build} has not all of {', '.join(program_pages.PROGRAMS)}")
    if not programs:
        print("site: no build has the programs, so they get no pages", file=sys.stderr)
        return {}
    return program_pages.pages(programs, names)


def main(work, out, build=None):
    os.chdir(ROOT)
    of_code, names = pages_of_headers(work)
    of_code |= python_pages.pages(python_interface.read(PACKAGE), names)
    of_code |= pages_of_programs(build, names)
    docs = documents.Documents(ROOT, files_of_project(ROOT), of_code)
    made = docs.pages()
    made |= {name: docs.rewritten(name, text) if name.endswith(".md") else text for name, text in of_code.items()}
    if docs.errors:
        sys.exit("\n".join(docs.errors))
    made |= {f"{path}.md": docs.source(path) for path in sorted(docs.shown)}
    for name, text in made.items():
        (out / name).parent.mkdir(parents=True, exist_ok=True)
        (out / name).write_text(text)
    for name in docs.images:
        (out / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, out / name)


if __name__ == "__main__":
    if len(sys.argv) not in (3, 4):
        sys.exit(__doc__)
    main(*(pathlib.Path(folder).resolve() for folder in sys.argv[1:]))
