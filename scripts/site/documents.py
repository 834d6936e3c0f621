"""The documents of the repository as pages of the site: the same files, with links that fit the site.

A document keeps its path, but README.md is index.md there. A link to another file of the repository leads to a page
that shows it, and one to a folder to its README. A picture NAME.svg may have a version for phones beside it,
NAME-tall.svg: it then stands behind the picture, and conf.py makes one of the two.
"""
import os
import pathlib
import re

LINK = re.compile(r"(!?)(\[(?:[^\]\[]|\[[^\]]*\])*\])\(([^)\s]+)\)")
NOT_TEXT = re.compile(r"^(```|~~~).*?^\1[^\n]*$|`[^`\n]+`", re.M | re.S)
LANGUAGES = {".c": "c", ".h": "c", ".hpp": "c++", ".cc": "c++", ".cu": "c++", ".py": "python", ".sh": "bash",
             ".toml": "toml", ".cmake": "cmake"}
# Lists of pages that are made of code, if they are there, and what they lead to for readers of a header.
OF_CODE = ["interface/index.md", "cpp/index.md", "python/index.md", "programs/index.md"]
SEE = {"include/moecomm.h": "[C interface]({up}/interface/index.md) has a page for each function and type.",
       "include/moecomm.hpp": "[C++ interface]({up}/cpp/index.md) has a page for each class and function."}
SHELVES = [("Guide", "docs/guide"), ("Reference", "docs/reference"), ("Internals", "docs/internals")]


def page_of(path):
    """The page of a document."""
    return re.sub(r"(^|/)README\.md$", r"\1index.md", path)


class Documents:
    """The pages of all documents, and of the other files that they link to."""

    def __init__(self, root, files, made=()):
        self.root, self.files = root, set(files)
        self.made = set(made)  # pages of the site that are no files of the repository
        self.folders = {str(parent) for path in files for parent in pathlib.PurePosixPath(path).parents}
        self.shown, self.images, self.errors = set(), set(), []

    def target(self, document, link, where, is_image):
        """The link from a page to what a document links to."""
        if re.match(r"[a-z]+:|#|//", link):
            return link
        path, mark, anchor = link.partition("#")
        path = os.path.normpath(os.path.join(os.path.dirname(document), path))
        if path in self.folders:
            path = os.path.normpath(f"{path}/README.md")
        if path in self.made:
            return link
        if path not in self.files:
            self.errors.append(f"{where}: {link}: there is no such file")
            return link
        if is_image:
            self.images.add(path)
        elif path.endswith(".md"):
            path = page_of(path)
        else:
            self.shown.add(path)
            path += ".md"
        return os.path.relpath(path, os.path.dirname(page_of(document)) or ".") + mark + anchor

    def tall(self, document, link):
        """The link to the tall version of a picture; "" if there is none."""
        link = re.sub(r"\.svg$", "-tall.svg", link)
        path = os.path.normpath(os.path.join(os.path.dirname(document), link))
        return self.target(document, link, document, True) if link.endswith("-tall.svg") and path in self.files else ""

    def rewritten(self, document, text):
        no_text = [match.span() for match in NOT_TEXT.finditer(text)]

        def link(match):
            if any(begin <= match.start() < end for begin, end in no_text):
                return match.group()
            where = f"{document}:{text.count(chr(10), 0, match.start()) + 1}"
            to = self.target(document, match[3], where, bool(match[1]))
            label = match[2]
            if LINK.search(label):  # a picture that is a link
                label = LINK.sub(link, label)
            made = f"{match[1]}{label}({to})"
            tall = self.tall(document, match[3]) if match[1] else ""
            return made + (f"{match[1]}{label}({tall})" if tall else "")

        return LINK.sub(link, text)

    def source(self, path):
        """The page that shows a file."""
        up = os.path.relpath(".", os.path.dirname(path) or ".")
        language = LANGUAGES.get(os.path.splitext(path)[1], "text")
        see = f"\n{SEE[path]}\n".format(up=up) if path in SEE else ""
        text = (self.root / path).read_text()
        fence = "`" * (max(map(len, re.findall(r"`+", text)), default=2) + 3)
        return f"---\norphan: true\n---\n# {path}\n{see}\n{fence}{language}\n{text}{fence}\n"

    def pages(self):
        made = {page_of(path): self.rewritten(path, (self.root / path).read_text())
                for path in sorted(self.files) if path.endswith(".md") and not path.startswith(".")}
        made["index.md"] += navigation(made, [name for name in OF_CODE if name in self.made])
        made["docs/decisions/index.md"] += toctree(":hidden:\n:glob:", ["0*"])
        return made


def toctree(options, names):
    return "\n".join(["", "```{toctree}", options, "", *names, "```", ""])


def navigation(pages, of_code):
    """The contents of the whole site, in the order of docs/README.md. A page that is missing there makes Sphinx warn.
    Pages `of_code` come first in the reference."""
    listed = re.findall(r"\]\((\w[^)]*\.md)\)", pages["docs/index.md"])
    out = []
    for title, folder in SHELVES:
        names = [f"docs/{name}" for name in listed if f"docs/{name}".startswith(folder)]
        names = [*of_code, *names] if title == "Reference" else names
        if title == "Internals":
            rooms = sorted(name for name in pages if name.startswith("src/"))
            names += [*rooms, "docs/decisions/index.md"]
        out.append(toctree(f":hidden:\n:caption: {title}", names))
    others = sorted(name for name in pages if name.startswith(("tests/", "packaging/", "perf/")) and name != "tests/index.md")
    about = [name for name in ("STYLE.md", "REVIEW.md", "SECURITY.md") if name in pages]
    project = ["docs/index.md", "CONTRIBUTING.md", *about, "CHANGELOG.md", "tests/index.md", *others]
    return "".join([*out, toctree(":hidden:\n:caption: Project", project)])
