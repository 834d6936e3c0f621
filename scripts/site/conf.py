"""How Sphinx makes the site of the pages that make_pages.py has made. scripts/site.sh runs it."""
import json
import pathlib
import re

from docutils import nodes
from sphinx import addnodes

PAGES = pathlib.Path(__file__).parent / "pages"  # site.sh copies this file beside them
HEADER = (PAGES / "include/moecomm.h.md").read_text()


def names_of(folder):
    """The names for which the pages of a folder give links."""
    path = PAGES / folder / "names.json"
    return frozenset(json.loads(path.read_text())) if path.exists() else frozenset()


NAMES, CPP_NAMES, PROGRAMS = names_of("interface"), names_of("cpp"), names_of("programs")

project = "moecomm"
version = release = ".".join(re.search(rf"#define MOE_VERSION_{part} (\d+)", HEADER)[1]
                             for part in ("MAJOR", "MINOR", "PATCH"))
extensions = ["myst_parser"]
myst_enable_extensions = ["colon_fence", "deflist"]
myst_heading_anchors = 6
root_doc = "index"
exclude_patterns = ["**/names.json"]
nitpicky = True
nitpick_ignore = [("c:identifier", name) for name in
                  ("size_t", "uint8_t", "uint32_t", "uint64_t", "int32_t", "int64_t", "CUstream_st", "moeComm",
                   "moeHandle")]
nitpick_ignore_regex = [("cpp:identifier", r"std(::.*)?")]
smartquotes = False
add_function_parentheses = False
maximum_signature_line_length = 90
pygments_style = "friendly"

html_theme = "furo"
html_title = f"moecomm {release}"
html_static_path = ["static"]
html_css_files = ["site.css"]
html_search_scorer = str(PAGES.parent / "static/search_order.js")
html_show_copyright = False
html_copy_source = False
html_show_sourcelink = False


def target_of(text, document):
    """What a name that stands as code links to: (domain, type, target), or None."""
    if text in NAMES:
        return "c", "identifier", text
    if text in PROGRAMS:
        return "std", "doc", f"/programs/{text}"
    # Words such as Handle are the C++ classes in one guide alone. In others they are Python's.
    name = re.sub(r"<.*>$", "", text)
    if document == "docs/guide/cpp" and name in CPP_NAMES:
        return "cpp", "identifier", f"moecomm::{name}"
    return None


def link_names(app, document):
    """Makes a link of each name of the interface, and of each program, that a document shows as code."""
    for literal in list(document.findall(nodes.literal)):
        parent, found = literal.parent, target_of(literal.astext(), app.env.docname)
        if found and not isinstance(parent, (nodes.reference, addnodes.pending_xref, nodes.title)):
            domain, kind, target = found
            link = addnodes.pending_xref("", refdomain=domain, reftype=kind, reftarget=target, refexplicit=False,
                                         refwarn=True)
            link["refdoc"] = app.env.docname
            parent.replace(literal, link)
            link += literal


def c_name_in_cpp(app, env, node, shown):
    """Signatures of C++ name types of the C interface."""
    if node.get("refdomain") != "cpp" or node["reftarget"] not in NAMES:
        return None
    return env.domains["c"].resolve_xref(env, node["refdoc"], app.builder, "identifier", node["reftarget"], node, shown)


def setup(app):
    app.connect("doctree-read", link_names)
    app.connect("missing-reference", c_name_in_cpp)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
