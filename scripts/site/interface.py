"""What a C header declares, with its comments, as Doxygen sees it. interface_pages.py makes pages of it.

The header has plain comments, /* ... */. Doxygen gets a copy in which each is a documentation comment that consists of
a number. So it says which comment belongs to what, and leaves the texts alone.
"""
import dataclasses
import pathlib
import re
import subprocess
import xml.etree.ElementTree as ElementTree

HERE = pathlib.Path(__file__).resolve().parent
COMMENT = re.compile(r"/\*.*?\*/", re.S)
DIVIDER = re.compile(r"^/\* -{2,} (.+?) -{2,} \*/$", re.M)
NEEDS_NO_COMMENT = re.compile(r"size|reserved|MOE_\w+_INITIALIZER|MOE_API|\w+_H_")
WIDTH = 120  # of the header's lines


@dataclasses.dataclass
class Entry:
    kind: str  # function, struct, enum, type, macro, field, enumerator
    name: str  # of an enum without a name: what its values have in common
    line: int
    comment: str
    declaration: str
    parameters: list = dataclasses.field(default_factory=list)  # names
    types: str = ""  # of the parameters
    members: list = dataclasses.field(default_factory=list)
    macros: list = dataclasses.field(default_factory=list)
    title: str = ""


@dataclasses.dataclass
class Interface:
    about: str  # the header's first comment
    sections: list  # (title, [Entry])

    def entries(self):
        return [entry for _, entries in self.sections for entry in entries]


def text_of(comment):
    """A comment's text."""
    lines = comment.removesuffix("*/").removeprefix("/*").split("\n")
    return text_of_lines([(re.sub(r"^\s*\* ?", "", raw) if number else raw.removeprefix(" "), len(raw))
                          for number, raw in enumerate(lines)])


def text_of_lines(lines):
    """The text of a comment's lines, each with the width that it takes in the header. A line end that its author chose,
    because the line had room for more, becomes two."""
    text, room = [], 0
    for line, width in lines:
        is_new = bool(text) and text[-1].endswith((".", ":")) and re.match(r"[A-Za-z`]", line)
        if is_new and room > len(line.split(" ")[0]):
            text.append("")
        text.append(line.rstrip())
        room = WIDTH - width - 1
    return "\n".join(text).strip()


def numbered(header):
    """The header for Doxygen, and the texts of its comments by number."""
    texts = []

    def number(match):
        comment, start = match.group(), match.start()
        before = header[header.rfind("\n", 0, start) + 1:start]
        if start == 0 or DIVIDER.match(comment) or before.startswith("#endif"):
            return comment
        texts.append(text_of(comment))
        side = "<" if COMMENT.sub("", before).strip() else ""
        return f"/**{side} comment{len(texts) - 1}" + "\n" * comment.count("\n") + " */"

    return COMMENT.sub(number, header), texts


def run_doxygen(work, name, header, more=""):
    """The roots of what Doxygen writes in the folder `work` about a header. `more`: further settings."""
    (work / name).write_text(header)
    settings = (HERE / "Doxyfile").read_text() + more + f'INPUT = "{work / name}"\nOUTPUT_DIRECTORY = "{work}"\n'
    done = subprocess.run(["doxygen", "-"], input=settings, text=True, capture_output=True, check=False)
    if done.returncode or done.stderr:
        raise SystemExit(f"doxygen: status {done.returncode}\n{done.stderr}")
    files = sorted((work / "xml").glob("*.xml"))
    return [ElementTree.parse(path).getroot() for path in files if path.name not in ("index.xml", "Doxyfile.xml")]


def words(node):
    return " ".join("".join(node.itertext()).split()) if node is not None else ""


def common_name(values):
    """What the names of an enumeration's values have in common, to the end of a word: moeRow of moeRowBf16, moeRowFp16."""
    parts = [re.findall(r"[A-Z]?[a-z0-9]+", value) for value in values]
    common = [column[0] for column in zip(*parts) if len(set(column)) == 1]
    return "".join(common[:min(map(len, parts)) - 1])


class Reader:
    def __init__(self, path, texts):
        self.path, self.texts = path, texts

    def comment(self, node):
        found = [words(node.find(part)) for part in ("briefdescription", "detaileddescription", "inbodydescription")]
        return "\n\n".join(self.texts[int(number)] for number in re.findall(r"comment(\d+)", " ".join(found)))

    def entry(self, node):
        make = {"function": self.function, "typedef": self.typedef, "enum": self.enum, "define": self.macro}
        kind, name, line = node.get("kind"), words(node.find("name")), int(node.find("location").get("line"))
        if kind not in make:
            raise SystemExit(f"{self.path}:{line}: {name}: a {kind} has no place in the interface")
        return make[kind](node, name, line)

    def function(self, node, name, line):
        parameters = node.findall("param")
        declaration = words(node.find("definition")) + words(node.find("argsstring"))
        return Entry("function", name, line, self.comment(node), declaration,
                     [words(one.find("declname")) for one in parameters],
                     " ".join(words(one.find("type")) for one in parameters))

    def typedef(self, node, name, line):
        declaration = words(node.find("definition"))
        parameters = re.findall(r"(\w+)(?=[,)])", declaration.split(") (")[1]) if ") (" in declaration else []
        return Entry("type", name, line, self.comment(node), declaration, parameters)

    def enum(self, node, name, line):
        values = [Entry("enumerator", words(value.find("name")), line, self.comment(value),
                        f"{words(value.find('name'))} {words(value.find('initializer'))}".strip())
                  for value in node.findall("enumvalue")]
        comment = self.comment(node)
        if not name.startswith("@"):
            return Entry("enum", name, line, comment, name, members=values, title=name)
        name = common_name([value.name for value in values])
        if name == "moe":
            title = re.match(r"[^.]*", comment).group().replace("`", "")
            return Entry("enum", re.sub(r"[^a-z0-9]+", "-", title.lower()).strip("-"), line, comment, "", members=values, title=title)
        return Entry("enum", name, line, comment, "", members=values, title=f"{name} values")

    def macro(self, node, name, line):
        return Entry("macro", name, line, self.comment(node), name)

    def struct(self, compound):
        name = words(compound.find("compoundname"))
        fields = [Entry("field", words(field.find("name")), int(field.find("location").get("line")),
                        self.comment(field), words(field.find("type")) + " " + words(field.find("name")) +
                        words(field.find("argsstring")))
                  for field in compound.iter("memberdef")]
        return Entry("struct", name, int(compound.find("location").get("line")), self.comment(compound), name,
                     members=fields)


def complaints(path, entries):
    """What the contract lacks: comments, and descriptions that are of no parameter."""
    for entry in entries:
        for one in [entry, *entry.macros, *(entry.members if entry.kind == "struct" else [])]:
            if not one.comment and not NEEDS_NO_COMMENT.fullmatch(one.name):
                of = f"{entry.name}." if one.kind == "field" else ""
                yield f"{path}:{one.line}: {of}{one.name} has no comment"
        if entry.parameters:
            for names in re.findall(r"^ {2,3}(\w+(?:, \w+)*) {2,}\S", entry.comment, re.M):
                for name in names.split(", "):
                    if name not in entry.parameters:
                        yield f"{path}:{entry.line}: the comment of {entry.name} describes {name}, which is no parameter"


def read(path, work):
    """The interface of a header. Raises SystemExit with a line for each thing that its comments lack."""
    header = pathlib.Path(path).read_text()
    copy, texts = numbered(header)
    reader = Reader(path, texts)
    entries = []
    for root in run_doxygen(work, pathlib.Path(path).name, copy):
        for compound in root.findall("compounddef"):
            if compound.get("kind") == "struct":
                entries.append(reader.struct(compound))
            elif compound.get("kind") == "file":
                entries += [reader.entry(node) for node in compound.iter("memberdef")]
    entries.sort(key=lambda entry: entry.line)
    return arrange(path, header, entries)


def arrange(path, header, entries):
    """In sections, and each macro with what stands before it."""
    sections = [(match.group(1), header.count("\n", 0, match.start()) + 1) for match in DIVIDER.finditer(header)]
    arranged = [(title, []) for title, _ in sections]
    version = []
    for entry in entries:
        place = [list_ for (_, line), (_, list_) in zip(sections, arranged) if line < entry.line]
        if entry.kind == "macro" and NEEDS_NO_COMMENT.fullmatch(entry.name) and not place:
            continue
        if entry.kind != "macro":
            place[-1].append(entry)
        else:
            (place[-1][-1].macros if place else version).append(entry)
    found = [entry for _, list_ in arranged for entry in list_]
    for entry in found:
        if entry.name == "moeGetVersion":
            entry.macros += version
    wrong = list(complaints(path, found))
    if wrong:
        raise SystemExit("\n".join(wrong))
    return Interface(text_of(COMMENT.match(header).group()), arranged)
