#!/usr/bin/env python3
"""Makes the Markdown pages of which Sphinx makes the site: the repository's documents, and the interface's pages.

Usage: make_pages.py WORK PAGES   (folders: for what Doxygen makes, and for the pages; scripts/site.sh calls it)
"""
import os
import pathlib
import shutil
import subprocess
import sys

import documents
import interface
import interface_pages

ROOT = pathlib.Path(__file__).resolve().parents[2]
HEADER = "include/moecomm.h"


def files_of_project(root):
    command = ["git", "-C", str(root), "-c", "safe.directory=*", "ls-files", "-z", "--cached", "--others",
               "--exclude-standard"]
    listing = subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout.decode()
    return sorted(path for path in listing.split("\0") if path and (root / path).is_file())


def main(work, out):
    os.chdir(ROOT)
    of_interface = interface_pages.pages(interface.read(HEADER, work), HEADER)
    docs = documents.Documents(ROOT, files_of_project(ROOT), of_interface)
    made = docs.pages()
    made |= {name: docs.rewritten(name, text) if name.endswith(".md") else text for name, text in of_interface.items()}
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
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    main(*(pathlib.Path(folder).resolve() for folder in sys.argv[1:]))
