"""A page for each function and each type of the interface, and one that lists them all."""
import json
import re

import prose

INITIALIZER = "Sets `size`, and gives every other field its initial value: `{type} {variable} = {name};`"
ROLES = {"function": "func", "struct": "struct", "enum": "enum", "type": "type", "macro": "macro"}
SOURCE = "../{path}"
# How the index is grouped: by what readers look for. What stands in no group keeps the title of its section.
GROUPS = [
    ("Start and end", ["moeGetUniqueId", "moeUniqueId_t", "moeCommInit", "moeCommInitFromEnv", "moeCommDestroy",
                       "moeCommAbort", "moeCommSuspend", "moeCommResume", "moeCommDisconnect", "moeCommReconnect",
                       "moeCommRecover", "moeRecovery_t", "moeCommReplace", "moeComm_t"]),
    ("Configuration", ["moeConfig_t", "moeBackend", "moeMode", "moeLog", "moeLogFunction_t", "moeCommSetTimeout",
                       "moeStream_t"]),
    ("Versions, limits and peers", ["moeGetVersion", "moeGetLimits", "moeLimits_t", "moeCommGetInfo", "moeCommInfo_t",
                                    "moeCommGetPeerInfo", "moePeerInfo_t", "moeTransport"]),
    ("Handles", ["moeHandleCreate", "moeHandleConfig_t", "moeLayout", "moeIndex", "moeDuplicates", "moeHandleDestroy",
                 "moeHandle_t", "moeHandleSetTokensBound", "moeHandleSetPlacement", "moePlacement_t"]),
    ("Route", ["moeRoute", "moeTokens", "moeHandleGetCounts", "moeCounts_t", "moeHandleGetDeviceCounts",
               "moeDeviceCounts_t", "moeGetDispatchLayout", "moeDispatchLayout_t"]),
    ("Dispatch", ["moeDispatch", "moeRouteDispatch", "moeDispatchArgs_t", "moeDescribe_t", "moeIds", "moePayload_t",
                  "moePad", "moeHandleGetArrivals", "moeArrivals_t", "moeHandleGetView", "moeHandleView_t"]),
    ("Combine", ["moeCombine", "moeCombineArgs_t", "moeWeights", "moeReady_t", "moeGrads_t"]),
    ("Steps in two parts, and refusals", ["moeComplete", "moeCompleteDispatch", "bits-of-flags"]),
    ("Casts and formats", ["moeRow", "moeCast_t", "moeCast", "bits-of-a-cast-s-flags", "where-scales-and-payloads-lie",
                           "moeWire"]),
    ("Memory", ["moeMemAlloc", "moeMemFree", "moeMemPoolUse", "moeMemPoolAlloc", "moeMemPoolFree", "moeAllocate_t",
                "moeFree_t", "moeMemory", "moeCommGetMemorySize", "moeMemorySize_t"]),
    ("Errors", ["moeResult_t", "moeGetLastError", "moeGetErrorString", "moeCommGetAsyncError", "moeHandleGetStatus",
                "moeHandleStatus_t"]),
    ("Statistics and recorder", ["moeHandleGetStatistics", "moeStatistics_t", "moeCommDump"]),
]


def links(interface, folder=""):
    """What stands for a name of the interface in Markdown. `folder`: that of its pages, seen from the page with the link."""
    names = {}
    for entry in interface.entries():
        has_name = entry.kind != "enum" or entry.declaration
        names[entry.name] = f"{{c:{ROLES[entry.kind]}}}`{entry.name}`" if has_name else f"[`{entry.name}`]({folder}{entry.name}.md)"
        for macro in entry.macros:
            names[macro.name] = f"{{c:macro}}`{macro.name}`"
        for member in entry.members:
            if entry.kind == "enum":
                names[member.name] = f"{{c:enumerator}}`{member.name}`"
            else:
                names[f"{entry.name}.{member.name}"] = f"{{c:member}}`{entry.name}.{member.name}`"
    return names


def directive(kind, declaration, body="", fence="```"):
    return f"{fence}{{c:{kind}}} {declaration}\n{body}{fence}\n"


def described(kind, one, text):
    return directive(kind, one.declaration, text, "::::" if kind in ("member", "enumerator") else "```")


def fields(entry, names):
    """A struct with its fields inside."""
    parts = []
    for field in entry.members:
        comment = field.comment
        if not comment:
            comment = "The size of this struct, which its initializer sets." if field.name == "size" else "0."
        parts.append(described("member", field, "\n" + prose.markdown(comment, names)))
    return directive("struct", entry.declaration, "\n" + "\n".join(parts), ":::::")


def values(entry, names):
    own = directive("enum", entry.declaration) if entry.declaration else ""
    return own + "\n" + "\n".join(described("enumerator", value, "\n" + prose.markdown(value.comment, names)
                                            if value.comment else "") for value in entry.members)


def macros(entry, names):
    if not entry.macros:
        return ""
    parts = ["## Macros\n"]
    for macro in entry.macros:
        if macro.comment:
            text = prose.markdown(macro.comment, names)
        else:
            variable = re.sub(r"^moe|_t$", "", entry.name)
            text = INITIALIZER.format(type=entry.name, variable=variable[0].lower() + variable[1:], name=macro.name)
        parts.append(directive("macro", macro.name, f"\n{text}\n"))
    return "\n".join(parts)


def users(entry, interface, names):
    """The functions that take such a value."""
    takes = [names[one.name] for one in interface.entries()
             if one.kind == "function" and re.search(rf"\b{entry.name}\b", one.types)]
    return f"**Taken by** {', '.join(takes)}\n" if takes and entry.kind == "struct" else ""


def page(entry, interface, names, path):
    text = prose.markdown(entry.comment, names)
    declared = f"Declared in [{path}]({SOURCE.format(path=path)}).\n"
    if entry.kind == "struct":
        body = [text, users(entry, interface, names), fields(entry, names)]
    elif entry.kind == "enum":
        body = [text, values(entry, names)]
    else:
        kind = {"function": "function", "type": "type"}[entry.kind]
        body = [directive(kind, entry.declaration.removeprefix("typedef ")), text]
    return "\n".join([f"# {entry.title or entry.name}\n", *body, macros(entry, names), declared])


def table(title, entries, names):
    lines = [f"## {title}\n", "| | |", "|---|---|"]
    for entry in entries:
        what = prose.inline(prose.summary(entry.comment), names).replace("|", "\\|")
        lines.append(f"| [`{entry.title or entry.name}`]({entry.name}.md) | {what} |")
    toctree = ["```{toctree}", ":hidden:", "", *(entry.name for entry in entries), "```"]
    return "\n".join([*lines, "", *toctree, ""])


def groups(interface):
    """(title, entries) of the index."""
    entries = {entry.name: entry for entry in interface.entries()}
    grouped = {name for _, members in GROUPS for name in members}
    found = [(title, [entries[name] for name in members if name in entries]) for title, members in GROUPS]
    found += [(title, [entry for entry in listed if entry.name not in grouped]) for title, listed in interface.sections]
    return [(title, members) for title, members in found if members]


def contents(interface, names, path):
    about = prose.markdown(interface.about, names)
    return "\n".join(["# C interface\n", f"The whole header: [{path}]({SOURCE.format(path=path)}).\n", about,
                      *(table(title, entries, names) for title, entries in groups(interface))])


def pages(interface, path):
    """The pages by their names in the folder of the interface, and the names for which other pages get links."""
    names = links(interface)
    made = {f"{entry.name}.md": page(entry, interface, names, path) for entry in interface.entries()}
    made["index.md"] = contents(interface, names, path)
    made["names.json"] = json.dumps(sorted(name for name, link in names.items() if link.startswith("{c:")))
    return {f"interface/{name}": text for name, text in made.items()}
