"""How Sphinx makes the site of the pages that make_pages.py has made. scripts/site.sh runs it."""
import json
import pathlib
import re

from docutils import nodes
from sphinx import addnodes

PAGES = pathlib.Path(__file__).parent / "pages"  # site.sh copies this file beside them
HEADER = (PAGES / "include/moecomm.h.md").read_text()
NAMES = frozenset(json.loads((PAGES / "interface/names.json").read_text()))

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
smartquotes = False
add_function_parentheses = False
maximum_signature_line_length = 90
pygments_style = "friendly"

html_theme = "furo"
html_title = f"moecomm {release}"
html_static_path = ["static"]
html_css_files = ["site.css"]
html_show_copyright = False
html_copy_source = False
html_show_sourcelink = False


def link_names(_, document):
    """Makes a link of each name of the interface that a document shows as code."""
    for literal in list(document.findall(nodes.literal)):
        parent = literal.parent
        if literal.astext() in NAMES and not isinstance(parent, (nodes.reference, addnodes.pending_xref, nodes.title)):
            link = addnodes.pending_xref("", refdomain="c", reftype="identifier", reftarget=literal.astext(),
                                         refexplicit=False, refwarn=True)
            link["refdoc"] = document.settings.env.docname
            parent.replace(literal, link)
            link += literal


def setup(app):
    app.connect("doctree-read", link_names)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
