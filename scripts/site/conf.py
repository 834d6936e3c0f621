"""How Sphinx makes the site of the pages that make_pages.py has made. scripts/site.sh runs it."""
import builtins
import json
import pathlib
import re
import urllib.parse

from docutils import nodes
from sphinx import addnodes
from sphinx.writers.html5 import HTML5Translator

PAGES = pathlib.Path(__file__).parent / "pages"  # site.sh copies this file beside them
HEADER = (PAGES / "include/moecomm.h.md").read_text()

PHONE = "(max-width: 46em)"  # as in site.css


def names_of(folder):
    """The names for which the pages of a folder give links."""
    path = PAGES / folder / "names.json"
    return frozenset(json.loads(path.read_text())) if path.exists() else frozenset()


NAMES, CPP_NAMES, PROGRAMS = names_of("interface"), names_of("cpp"), names_of("programs")
PYTHON_NAMES = names_of("python")
# Guides, and the module whose names they write without it.
MODULES = {"docs/guide/python": "moecomm", "docs/guide/torch": "moecomm.torch", "docs/guide/jax": "moecomm.jax",
           "docs/guide/deepep": "moecomm.deep_ep", "docs/guide/vllm": "moecomm.vllm",
           "docs/guide/vllm-cpu": "moecomm.vllm", "docs/guide/sglang": "moecomm.sglang"}

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
nitpick_ignore_regex = [("cpp:identifier", r"std(::.*)?"), ("py:.*", r"(torch|jax|ctypes|threading)\..*"),
                        ("py:class", r"(Dispatch|Combine)Plan")]  # dictionaries, which Handle.plan describes
python_use_unqualified_type_names = True
python_maximum_signature_line_length = 90
smartquotes = False
add_function_parentheses = False
toc_object_entries_show_parents = "hide"
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
    name = re.sub(r"\(.*\)$", "", text)
    own = [f"{MODULES[document]}.{name}", f"moecomm.{name}"] if document in MODULES else []
    found = next((path for path in (name, *own) if path in PYTHON_NAMES), None)
    return ("py", "obj", found) if found else None


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


def unlink_builtins(app, document):
    """The type bytes of a signature is Python's, not a member of that name."""
    for link in list(document.findall(addnodes.pending_xref)):
        if link.get("refdomain") == "py" and hasattr(builtins, link["reftarget"]) and link["reftarget"].islower():
            link.replace_self(nodes.Text(link["reftarget"]))


def join_pictures(app, document):
    """Makes one of a picture and its tall version, which stands behind it."""
    for tall in [image for image in document.findall(nodes.image) if image["uri"].endswith("-tall.svg")]:
        wide = tall.parent[tall.parent.index(tall) - 1]
        joined = nodes.inline("", "", classes=["picture"])
        tall.parent.remove(tall)
        wide.parent.replace(wide, joined)
        joined += [wide, tall]


def tall_of(image):
    """(whether an image is a tall version, its own tall version or None)."""
    around = image.parent
    if not isinstance(around, nodes.inline) or "picture" not in around["classes"]:
        return False, None
    return image is around[1], around[1]


def visit_image(self, image):
    is_tall, tall = tall_of(image)
    if is_tall:
        raise nodes.SkipNode
    if tall is not None:
        name = urllib.parse.quote(self.builder.images[tall["uri"]])
        self.body.append(f'<picture><source media="{PHONE}" srcset="{self.builder.imgpath}/{name}">')
    HTML5Translator.visit_image(self, image)


def depart_image(self, image):
    HTML5Translator.depart_image(self, image)
    if tall_of(image)[1] is not None:
        self.body.append("</picture>")


def c_name_in_cpp(app, env, node, shown):
    """Signatures of C++ name types of the C interface."""
    if node.get("refdomain") != "cpp" or node["reftarget"] not in NAMES:
        return None
    return env.domains["c"].resolve_xref(env, node["refdoc"], app.builder, "identifier", node["reftarget"], node, shown)


def setup(app):
    app.connect("doctree-read", link_names)
    app.connect("doctree-read", join_pictures)
    app.connect("doctree-read", unlink_builtins)
    app.add_node(nodes.image, override=True, html=(visit_image, depart_image))
    app.connect("missing-reference", c_name_in_cpp)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
