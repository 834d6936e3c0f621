"""A page for each class and each function of the C++ headers, and one that lists them all."""
import json
import re

import prose

SOURCE = "../{path}"


def role(kind, name, of=""):
    """A link that shows the name without its namespace, or what `of` says."""
    return f"{{cpp:{kind}}}`{of or name} <moecomm::{name}>`"


def links(headers, of_c):
    """What stands for a name in Markdown, those of the C interface included."""
    names = dict(of_c)
    for entry in (entry for header in headers for entry in header.entries):
        if entry.kind == "function":
            names[f"{entry.name}()"] = role("func", entry.name, f"{entry.name}()")
            continue
        names[entry.name] = role("class", entry.name)
        for member in entry.members:
            if member.name.isidentifier() and member.name != entry.name:
                of = {"function": "func", "member": "member"}[member.kind]
                names[f"{entry.name}::{member.name}"] = role(of, f"{entry.name}::{member.name}")
    return names


def inside(entry, names):
    """The names as the comments of a class use them: complete() is its own function."""
    own = {f"{member.name}()": role("func", f"{entry.name}::{member.name}", f"{member.name}()")
           for member in entry.members if member.kind == "function" and member.name.isidentifier()}
    return {**names, **own}


def directive(kind, declaration, body=""):
    return f":::{{cpp:{kind}}} {declaration}\n{body}:::\n"


def calls(entry, text, of_c):
    """The functions of the C interface behind a call, but for those that its comment names."""
    found = [of_c[name] for name in entry.calls if of_c.get(name, "").startswith("{c:func}") and name not in text]
    return f"**Calls** {', '.join(found)}\n" if found else ""


def field_set(entry, owner, names):
    """Which field of the C struct a setter without a comment fills."""
    field = re.sub(r"^set([A-Z])", lambda match: match[1].lower(), entry.name)
    link = names.get(f"{owner.base}.{field}")
    return f"Sets {link}.\n" if link and not entry.comment else ""


def members(owner, names, of_c):
    """The members. What one comment describes stands in a row above it."""
    out, section, text = [], "", ""
    for number, entry in enumerate(owner.members):
        if entry.section != section:
            section = entry.section
            out.append(f"## {section}\n")
        text = text if entry.joins else entry.comment
        goes_on = number + 1 < len(owner.members) and owner.members[number + 1].joins
        parts = [] if goes_on else [prose.markdown(text, names) if text else ""]
        parts += [field_set(entry, owner, names) if not text else "", calls(entry, text, of_c)]
        body = "\n".join(part for part in parts if part)
        out.append(directive(entry.kind, entry.declaration, f"\n{body}" if body else ""))
    return "\n".join(out)


def page(entry, header, names, of_c):
    declared = f"Declared in [{header.path}]({SOURCE.format(path=header.path)}).\n"
    in_namespace = "```{cpp:namespace} moecomm\n```\n"
    own = names if entry.kind == "function" else inside(entry, names)
    body = [in_namespace, directive(entry.kind, entry.declaration), prose.markdown(entry.comment, own)]
    if entry.kind == "function":
        body.append(calls(entry, entry.comment, of_c))
    else:
        body += [in_namespace.replace("moecomm", f"{entry.template}moecomm::{entry.name}"), members(entry, own, of_c)]
    return "\n".join([f"# {entry.name}\n", *body, declared])


def table(header, names):
    link = f"[`{header.path.removeprefix('include/')}`]({SOURCE.format(path=header.path)})"
    lines = [f"## {header.path.rsplit('/', 1)[-1]}\n",
             prose.inline(prose.summary(header.about), names) + f" The header: {link}.\n", "| | |", "|---|---|"]
    for entry in header.entries:
        what = prose.inline(prose.summary(entry.comment), names).replace("|", "\\|")
        lines.append(f"| [`{entry.name}`]({entry.name}.md) | {what} |")
    toctree = ["```{toctree}", ":hidden:", "", *(entry.name for entry in header.entries), "```"]
    return "\n".join([*lines, "", *toctree, ""])


def pages(about, path, headers, of_c):
    """The pages by their names in the folder cpp, and the names for which other pages get links.

    about  the first comment of the header `path`, which includes the others
    of_c   names of the C interface, and Markdown that links to them"""
    names = links(headers, of_c)
    made = {f"{entry.name}.md": page(entry, header, names, of_c) for header in headers for entry in header.entries}
    made["index.md"] = "\n".join(["# C++ interface\n", f"The header: [{path}]({SOURCE.format(path=path)}).\n",
                                  prose.markdown(about, names), *(table(header, names) for header in headers)])
    made["names.json"] = json.dumps(sorted(name for name in names if name not in of_c))
    return {f"cpp/{name}": text for name, text in made.items()}
