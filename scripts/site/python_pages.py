"""Pages of the Python package, one for each concern, and one that lists them all."""
import json

import prose
import python_interface

GUIDES = {"moecomm": "python", "moecomm.names": "python", "moecomm.torch": "torch", "moecomm.jax": "jax",
          "moecomm.deep_ep": "deepep", "moecomm.vllm": "vllm", "moecomm.sglang": "sglang"}
ABOUT = """Every public class, function and keyword of the package `moecomm`, with its docstring. The package needs ctypes alone,
and the adapters for torch, JAX, DeepEP, vLLM and SGLang what they adapt to. Guides:
[python.md](../docs/guide/python.md), [torch.md](../docs/guide/torch.md), [jax.md](../docs/guide/jax.md),
[deepep.md](../docs/guide/deepep.md), [vllm.md](../docs/guide/vllm.md), [sglang.md](../docs/guide/sglang.md).

Every rank makes the same calls in the same order. Arrays are device memory with the cuda backend and host memory with
the host backend. Shapes stand in brackets; "out rows" are the rows of a handle's layout.
"""
TITLES = {"": "", "moecomm.torch": "With torch", "moecomm.jax": "With JAX",
          "moecomm.deep_ep": "In DeepEP's place", "moecomm.vllm": "In engines",
          "moecomm": "The package"}


def role(entry, member=None, shown=""):
    """A link to an entry, or to a member of it."""
    path = ".".join([entry.home, entry.name, *([member.name] if member else [])])
    return f"{{py:obj}}`{shown or (member or entry).name} <{path}>`"


def named(name, is_called):
    return f"{name}()" if is_called else name


def links(pages):
    """What stands for a name of a module in Markdown: {module: {name: link}}."""
    found = {}
    for page in pages:
        names = found.setdefault(page.module, {})
        for entry in page.entries:
            shown = named(entry.name, entry.kind == "function")
            names[shown] = role(entry, shown=shown)
            names[f"{page.module}.{entry.name}"] = names[f"{page.module}.{shown}"] = role(
                entry, shown=f"{page.module}.{shown}")
            for member in entry.members:
                for text in {member.name, named(member.name, member.kind == "method")}:
                    names[f"{entry.name}.{text}"] = role(entry, member, f"{entry.name}.{text}")
    return found


def scope(page, found, of_c):
    """The names as a page uses them: its module's own come first, then those of moecomm."""
    everywhere = {name: link for names in found.values() for name, link in names.items() if name.startswith("moecomm.")}
    return {**of_c, **everywhere, **found["moecomm"], **found[page.module]}


def inside(entry, names):
    """The names as the docstrings of a class use them: counts() is its own method."""
    own = {f"{member.name}()": role(entry, member, f"{member.name}()") for member in entry.members
           if member.kind == "method"}
    return {**names, **own}


def markdown(text, names):
    """A docstring as Markdown. What stands in columns at its left edge becomes a list."""
    lines = [f"  {line}" if python_interface.TERM.match(line) else line for line in text.split("\n")]
    return prose.markdown("\n".join(lines), names).replace("```text\n", "```python\n")


def without_terms(text, names):
    """A docstring without what it says of these names."""
    kept, skips = [], False
    for line in text.split("\n"):
        match = python_interface.TERM.match(line)
        if match:
            skips = set(match[1].split(", ")) <= names
        elif not line.startswith("  "):
            skips = False
        if not skips:
            kept.append(line)
    return "\n".join(kept).strip()


def directive(kind, declaration, body="", options=(), fence=":::"):
    marks = "".join(f":{option}:\n" if not value else f":{option}: {value}\n" for option, value in options)
    between = "\n" if marks and body else ""
    return f"{fence}{{py:{kind}}} {declaration}\n{marks}{between}{body}{fence}\n"


def member(one, owner, names):
    path = f"{owner.name}.{one.name}"
    text = markdown(one.text, names) if one.text else ""
    if one.kind in ("property", "attribute"):
        return directive(one.kind, path, text, [("type", one.signature)] if one.signature else [])
    return directive("method", f"{path}{one.signature}", "\n" + text, [(name, "") for name in one.decorators])


def class_of(entry, names):
    own = inside(entry, names)
    fields = {one.name for one in entry.members if one.kind == "attribute"}
    shown = [directive(entry.kind, f"{entry.name}{entry.signature}")]
    if entry.bases:
        links_of = [names.get(base, f"`{base}`") for base in entry.bases]
        shown.append(f"Derived from {', '.join(links_of)}.\n")
    shown.append(markdown(without_terms(entry.text, fields), own))
    section = ""
    for one in entry.members:
        if one.section != section:
            section = one.section
            shown.append(f"### {section}\n")
        shown.append(member(one, entry, own))
    return "\n".join(shown)


def described(entry, names):
    if entry.kind in ("class", "exception"):
        return class_of(entry, names)
    if entry.kind == "function":
        return directive("function", f"{entry.name}{entry.signature}", "\n" + markdown(entry.text, names))
    options = [("canonical", entry.signature)] if entry.kind == "type" else [("value", entry.signature)]
    return directive(entry.kind, entry.name, markdown(entry.text, names), options)


def page_of(page, names):
    has_sections = any(one.section for entry in page.entries for one in entry.members)
    has_headings = has_sections or len(page.entries) < 12  # long lists of small things have none
    sources = ", ".join(f"`{path}`" for path in sorted({entry.module.path.as_posix() for entry in page.entries}))
    guide = GUIDES[page.module]
    out = [f"# {page.title}\n", f"Module `{page.module}`. Guide: [{guide}.md](../docs/guide/{guide}.md).\n"]
    for entry in page.entries:
        out.append(f"```{{py:currentmodule}} {entry.home}\n```\n")
        if has_headings:
            out.append(f"## {entry.name}\n")
        out.append(described(entry, names))
    return "\n".join([*out, f"Source: {sources}.\n"])


def table(page, names):
    lines = [f"### [{page.title}]({page.name}.md)\n", "| | |", "|---|---|"]
    for entry in page.entries:
        what = prose.inline(prose.summary(entry.text), names).replace("|", "\\|")
        lines.append(f"| {role(entry, shown=named(entry.name, entry.kind == 'function'))} | {what} |")
    return "\n".join([*lines, ""])


def contents(pages, found, of_c):
    out, module = ["# Python interface\n", ABOUT], None
    for page in pages:
        title = TITLES.get(page.module, "")
        if title and page.module != module:
            out.append(f"## {title}\n")
        module = page.module
        out.append(table(page, scope(page, found, of_c)))
    out += ["```{toctree}", ":hidden:", "", *(page.name for page in pages), "```", ""]
    return "\n".join(out)


def pages(read, of_c):
    """The pages by their names in the folder python, and the names for which other pages get links.

    of_c  names of the C interface, and Markdown that links to them"""
    found = links(read)
    made = {f"{page.name}.md": page_of(page, scope(page, found, of_c)) for page in read}
    made["index.md"] = contents(read, found, of_c)
    entries = [entry for page in read for entry in page.entries]
    names = {f"{entry.home}.{entry.name}" for entry in entries}
    names |= {f"{entry.home}.{entry.name}.{one.name}" for entry in entries for one in entry.members}
    made["names.json"] = json.dumps(sorted(names))
    return {f"python/{name}": text for name, text in made.items()}
