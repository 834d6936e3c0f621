"""A page for each program, of what it prints for --help, and one that lists them.

scripts/tool_pages.py, which makes the manual pages of the same text, reads it.
"""
import json
import pathlib
import subprocess

import prose
import tool_pages

PROGRAMS = ["moerun", "moe_perf", "moe_info", "moe_top", "moe_trace"]  # as installed, see cmake/MoecommInstall.cmake
FOLDERS = ["src", "perf", "bin"]  # of a build or of an installed copy


def programs_of(folder):
    """The paths of all programs in a build; none if one is missing."""
    found = [next((folder / part / name for part in FOLDERS if (folder / part / name).is_file()), None)
             for name in PROGRAMS]
    return [] if None in found else found


def newest_build(root):
    """The programs that were built last in a checkout, or none."""
    builds = filter(None, map(programs_of, (root / "build").glob("*/")))
    return max(builds, key=lambda programs: max(path.stat().st_mtime for path in programs), default=[])


def option(one, names):
    return f":::{{option}} {', '.join(one.names)} {one.argument}".rstrip() + f"\n\n{prose.inline(one.text, names)}\n:::\n"


def page(name, about, groups, names):
    summary, usage = tool_pages.split(name, about)
    body = [f"# {name}\n", f"{prose.inline(summary, names)}.\n", f"```text\n{name} {usage}\n```\n",
            f"```{{program}} {name}\n```\n"]
    for title, options, examples in groups:
        body += [f"## {title[0].upper()}{title[1:].lower()}\n", *(option(one, names) for one in options)]
        if examples:
            body += ["```text", *examples, "```\n"]
    return "\n".join(body)


def pages(programs, names):
    """The pages by their names in the folder programs.

    programs  paths
    names     of the C interface, and Markdown that links to them"""
    made, lines = {}, []
    for path in programs:
        name = path.name
        text = subprocess.run([name, "--help"], executable=path, check=True, capture_output=True, text=True).stdout
        about, groups = tool_pages.parsed(name, text)
        made[f"{name}.md"] = page(name, about, groups, names)
        lines.append(f"| [`{name}`]({name}.md) | {prose.inline(tool_pages.split(name, about)[0], names)}. |")
    toctree = ["```{toctree}", ":hidden:", "", *(path.name for path in programs), "```", ""]
    guide = "What they print for `--help`. [docs/guide/tools.md](../docs/guide/tools.md) says where each is explained.\n"
    made["index.md"] = "\n".join(["# Programs\n", guide, "| | |", "|---|---|", *lines, "", *toctree])
    made["names.json"] = json.dumps([path.name for path in programs])
    return {f"programs/{name}": text for name, text in made.items()}
