"""The comments of the header as Markdown: their lists, array shapes, names and files."""
import re

TERM = re.compile(r"^ {2,}(\S+(?:, \S+)*) {2,}(\S.*)$")
BULLET = re.compile(r"^( *)- (.*)$")
FILE = r'(?P<file>\b(?:docs|examples)/[\w/.-]*\w)(?:, "(?P<section>[^"]+)")?'
TOKEN = re.compile(r"(?P<code>`[^`]+`)|" + FILE + r"|(?P<shape>\w*(?:\[[^\]]+\])+)|"
                   r"(?P<field>\b(?:config|args)(?:\.\w+)+)|(?P<name>\b(?:moe[A-Z]|MOE_)\w*(?:\.\w+)?)|"
                   r"(?P<word>\b(?:[A-Z]\w*(?:(?:::|\.)\w+)?\b(?:\(\))?|moecomm\.[\w.]*\w(?:\(\))?|[a-z]\w*\(\)))|"
                   r"(?P<snake>\b(?:[a-z]\w*\.)?[a-z][a-z0-9]*(?:_[a-z0-9]+)+\b)")
SPECIAL = re.compile(r"([\\`*_{}\[\]<>#|!~^])")


def slug(title):
    """The anchor of a heading, as git hosts make it."""
    return re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-")


def inline(text, names):
    """A paragraph as Markdown. `names` maps names of the interface to Markdown that links to them."""

    def token(match):
        if match["code"]:
            return match["code"]
        if match["file"]:
            anchor = f"#{slug(match['section'])}" if match["section"] else ""
            of = f", \"{match['section']}\"" if match["section"] else ""
            return f"[{match['file']}{of}](../{match['file']}{anchor})"
        if match["word"]:  # a class or a function of C++ or Python, or any other word
            word = match["word"]
            plain = names.get(word.removesuffix("()"), "") if "::" in word or word.startswith("moecomm.") else ""
            return names.get(word) or (plain and plain + word[len(word.removesuffix("()")):]) or \
                SPECIAL.sub(r"\\\1", word)
        return names.get(match["name"], f"`{match.group()}`")

    pieces, end = [], 0
    for match in TOKEN.finditer(text):
        pieces += [SPECIAL.sub(r"\\\1", text[end:match.start()]), token(match)]
        end = match.end()
    return "".join(pieces) + SPECIAL.sub(r"\\\1", text[end:])


def blocks(text):
    """(kind, indentation, lines or (term, lines)): paragraphs, items and terms, in order."""
    found = []
    for line in text.split("\n"):
        indent = len(line) - len(line.lstrip())
        term, bullet = TERM.match(line), BULLET.match(line)
        if not line:
            found.append(("end", []))
        elif bullet:
            found.append(("item", [bullet[2]]))
        elif term and not (found and found[-1][0] == "item"):
            found.append((f"term {term[1]}", [term[2]]))
        elif found and found[-1][0] not in ("end", "text", "code") and indent:
            found[-1][1].append(line.strip())
        elif indent >= 4 and (not found or found[-1][0] in ("text", "end", "code")):
            if found and found[-1][0] == "code":
                found[-1][1].append(line)
            else:
                found.append(("code", [line]))
        elif found and found[-1][0] == "text":
            found[-1][1].append(line.strip())
        else:
            found.append(("text", [line.strip()]))
    return [block for block in found if block[0] != "end"]


def paragraphs(text):
    """A paragraph, cut before the results that a call returns."""
    return re.split(r"(?<=[.)]) (?=Returns (?:moe|what|also))", text)


def markdown(text, names):
    """A comment as Markdown."""
    out = []
    for kind, lines in blocks(text):
        joined = " ".join(lines)
        if kind == "code":
            out += ["```text", *(line[4:] for line in lines), "```"]
        elif kind == "item":
            out.append(f"- {inline(joined, names)}")
            continue
        elif kind.startswith("term "):
            terms = ", ".join(f"`{term}`" for term in kind[5:].split(", "))
            out += [terms, f": {inline(joined, names)}"]
        else:
            for part in paragraphs(joined):
                begin = "**Returns** " if part.startswith("Returns ") else ""
                out += [("" if not out or not out[-1] else "\n") + begin +
                        inline(part.removeprefix("Returns ") if begin else part, names), ""]
            continue
        out.append("")
    return "\n".join(out).strip() + "\n"


def summary(text):
    """The first sentence."""
    first = " ".join(blocks(text)[0][1])
    return re.match(r".*?[.](?= |$)|.*", first).group()
