"""What the C++ headers declare, with their comments, as Doxygen sees it. cpp_pages.py makes pages of it.

As for the C header, Doxygen gets a copy in which each comment is a number. Namespace detail and what is not public are
left out.
"""
import dataclasses
import pathlib
import re

import interface

SETTINGS = """OPTIMIZE_OUTPUT_FOR_C = NO
TYPEDEF_HIDES_STRUCT = NO
EXCLUDE_SYMBOLS = moecomm::detail
"""
KINDS = {"function": "function", "variable": "member"}
IN_FRONT = re.compile(r"^ *// ?(.*)$")
BEHIND = re.compile(r"^(.*[;{},)]) +// (.*)$")
DIVIDER = re.compile(r"^( *)// -{2,} (.+?) -{2,}$")
FROM_INITIALIZER = re.compile(r" : moe\w+_t MOE_\w+_INITIALIZER \{\}")  # Doxygen overlooks what comes behind it


@dataclasses.dataclass
class Entry:
    kind: str  # class, struct, function, member
    name: str  # without its scope
    line: int
    comment: str
    declaration: str  # as Sphinx takes it
    template: str = ""
    base: str = ""
    arguments: str = ""
    section: str = ""  # of its class: what the divider above it says
    leads: bool = False  # the comment stands in front, so it may describe the entries behind this one too
    joins: bool = False  # it is described by the comment of the entry before it
    calls: list = dataclasses.field(default_factory=list)  # names of the C interface in a function's body
    members: list = dataclasses.field(default_factory=list)


@dataclasses.dataclass
class Header:
    path: str
    about: str  # its first comment
    entries: list


def comment_run(lines, at):
    """How many lines from here on are one comment."""
    run = 0
    while at + run < len(lines) and IN_FRONT.match(lines[at + run]) and not DIVIDER.match(lines[at + run]):
        run += 1
    return run


def text_of(lines):
    return interface.text_of_lines([(IN_FRONT.match(line)[1], len(line)) for line in lines])


def numbered(lines):
    """The header for Doxygen, and the texts of its comments by number: (whether it stands in front, text)."""
    copy, texts, at = [], [], 0
    while at < len(lines):
        run = comment_run(lines, at)
        behind = BEHIND.match(lines[at])
        if run and at:
            copy.append(f"/** comment{len(texts)}" + "\n" * (run - 1) + " */")
            texts.append((True, text_of(lines[at:at + run])))
        elif behind and not behind[1].startswith("}"):
            copy.append(f"{behind[1]} /**< comment{len(texts)} */")
            texts.append((False, sentence(behind[2])))
        else:
            copy += lines[at:at + max(run, 1)]
        at += max(run, 1)
    return FROM_INITIALIZER.sub(" {}", "\n".join(copy)) + "\n", texts


def sentence(text):
    """A remark behind a declaration, as a sentence."""
    text = text if text.startswith("moe") else text[0].upper() + text[1:]
    return text if text.endswith(".") else text + "."


class Reader:
    def __init__(self, path, work):
        self.path = path
        self.lines = pathlib.Path(path).read_text().split("\n")
        copy, self.texts = numbered(self.lines)
        self.roots = interface.run_doxygen(work, pathlib.Path(path).name, copy, SETTINGS)

    def comment(self, node):
        """(whether it stands in front, text)."""
        found = [interface.words(node.find(part)) for part in ("briefdescription", "detaileddescription")]
        texts = [self.texts[int(number)] for number in re.findall(r"comment(\d+)", " ".join(found))]
        return bool(texts) and texts[0][0], "\n\n".join(text for _, text in texts)

    def entry(self, node):
        place = node.find("location")
        line, end = int(place.get("line")), int(place.get("bodyend") or -1)
        if node.get("kind") not in KINDS:
            raise SystemExit(f"{self.path}:{line}: a public {node.get('kind')} has no place in the interface")
        leads, comment = self.comment(node)
        scope = interface.words(node.find("qualifiedname")).rpartition("::")[0]
        what = re.sub(rf"\b{scope}(< \w+ >)?::", "", interface.words(node.find("definition")))
        arguments = re.sub(r" *= *(default|delete)$", "", interface.words(node.find("argsstring")))
        arguments = re.sub(r"< | >", lambda match: match.group().strip(), arguments)
        explicit = "explicit " if node.get("explicit") == "yes" else ""
        body = "\n".join(self.lines[line - 1:end])
        return Entry(KINDS[node.get("kind")], interface.words(node.find("name")), line, comment,
                     template_of(node) + explicit + what + arguments, arguments=arguments, leads=leads,
                     calls=list(dict.fromkeys(re.findall(r"\bmoe[A-Z]\w*\b", body))) if end > 0 else [])

    def compound(self, node):
        name = interface.words(node.find("compoundname")).removeprefix("moecomm::")
        base, template = interface.words(node.find("basecompoundref")), template_of(node)
        derived = f" : public {base}" if base else ""
        return Entry(node.get("kind"), name, int(node.find("location").get("line")), self.comment(node)[1],
                     template + name + derived, template, base,
                     members=self.in_order(self.entry(one) for one in node.iter("memberdef")
                                           if one.get("prot") == "public"))

    def in_order(self, entries):
        """By their lines, each with what stands above it."""
        entries = sorted(entries, key=lambda entry: entry.line)
        for before, entry in zip([None, *entries], entries):
            above = [match[2] for match in map(DIVIDER.match, self.lines[:entry.line]) if match and match[1]]
            entry.section = above[-1] if above else ""
            entry.joins = before is not None and self.shares(before, entry)
        return entries

    def shares(self, before, entry):
        """Whether the comment of the entry before describes this one too: they follow each other, and are overloads, or
        setters of the same arguments."""
        overloads = re.sub(r"\d$", "", before.name) == re.sub(r"\d$", "", entry.name)
        setters = before.name.startswith("set") and entry.name.startswith("set") and before.arguments == entry.arguments
        return not entry.comment and (before.leads or before.joins) and (overloads or setters) and \
            "" not in self.lines[before.line:entry.line]


def template_of(node):
    """template<class T>, without parameters that are conditions."""
    parameters = [f"{interface.words(one.find('type'))} {interface.words(one.find('declname'))}".strip()
                  for one in node.findall("templateparamlist/param")]
    parameters = [one for one in parameters if not one.startswith("std::enable_if_t")]
    return f"template<{', '.join(parameters)}> " if parameters else ""


def is_listed(entry):
    """Not a specialisation, a deduction guide, or what is declared by its name alone."""
    return "<" not in entry.name and "->" not in entry.arguments and not entry.name.startswith("__")


def about_of(path):
    """The first comment of a header."""
    lines = pathlib.Path(path).read_text().split("\n")
    return text_of(lines[:comment_run(lines, 0)])


def read(path, work):
    """What a header declares. Raises SystemExit with a line for each class or function that has no comment."""
    reader = Reader(path, work)
    entries = []
    for root in reader.roots:
        for compound in root.findall("compounddef"):
            if compound.get("kind") in ("class", "struct"):
                entries.append(reader.compound(compound))
            elif compound.get("kind") == "namespace" and interface.words(compound.find("compoundname")) == "moecomm":
                entries += [reader.entry(node) for node in compound.iter("memberdef")]
    entries = [entry for entry in reader.in_order(entries) if is_listed(entry)]
    wrong = [f"{path}:{entry.line}: {entry.name} has no comment" for entry in entries if not entry.comment]
    if wrong:
        raise SystemExit("\n".join(wrong))
    return Header(path, about_of(path), entries)
