#!/usr/bin/env python3
"""The generator of the site (scripts/site) makes pages that say what the C header says, and refuses what lacks a comment
or leads nowhere. site_code_test.py tests the pages of C++ and of programs. Needs doxygen."""
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

sys.dont_write_bytecode = True
ROOT = pathlib.Path(__file__).resolve().parents[2]
SITE = ROOT / "build/site/html"
sys.path[:0] = [str(ROOT / "scripts"), str(ROOT / "scripts/site")]
import documents  # noqa: E402
import interface  # noqa: E402
import interface_pages  # noqa: E402
import make_pages  # noqa: E402
import prose  # noqa: E402
import step_inputs  # noqa: E402

HEADER = """/* A library.
 *
 * Words:
 *     row  some bytes
 *  - A rule that goes on
 *    in the next line. */
#ifndef SOME_H_
#define SOME_H_
#define MOE_API

/* ---- Types ---- */

/* How rows lie. See docs/guide/formats.md, "Row types". */
enum { moeOrderNone = 0, moeOrderFirst = 1 /* the first [rows][hidden] */ };

/* What moeRun takes. */
typedef struct moeRunArgs {
  size_t size;
  int rows; /* how many; moeOrder values
             * say where */
  /* Before the field. */
  int after;
} moeRunArgs_t;
#define MOE_RUN_ARGS_INITIALIZER \\
  { sizeof(moeRunArgs_t), 0, 0 }

/* ---- Functions ---- */

/* Runs args.rows rows. Then stops.
 *   args  host [1]
 * Any thread. Returns moeOrderNone, or EXPERT_MAJOR*. */
MOE_API int moeRun(const moeRunArgs_t* args);
#endif /* SOME_H_ */
"""


class Case(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def write(self, name, text):
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return path


class TheInterface(Case):
    def read(self, before="", after=""):
        self.assertIn(before, HEADER)
        return interface.read(self.write("some.h", HEADER.replace(before, after, 1)), self.folder)

    def refusal(self, before, after):
        with self.assertRaises(SystemExit) as caught:
            self.read(before, after)
        return str(caught.exception).replace(str(self.folder) + "/", "")

    def test_says_which_comment_belongs_to_what(self):
        read = self.read()
        order, args, run = read.entries()
        self.assertEqual([title for title, _ in read.sections], ["Types", "Functions"])
        self.assertEqual((order.name, order.title, order.kind), ("moeOrder", "moeOrder values", "enum"))
        self.assertEqual([(one.declaration, one.comment) for one in order.members],
                         [("moeOrderNone = 0", ""), ("moeOrderFirst = 1", "the first [rows][hidden]")])
        self.assertEqual([(one.declaration, one.comment) for one in args.members],
                         [("size_t size", ""), ("int rows", "how many; moeOrder values\nsay where"),
                          ("int after", "Before the field.")])
        self.assertEqual([macro.name for macro in args.macros], ["MOE_RUN_ARGS_INITIALIZER"])
        self.assertEqual((run.declaration, run.parameters), ("int moeRun(const moeRunArgs_t *args)", ["args"]))

    def test_has_a_page_for_each_function_and_type(self):
        pages = interface_pages.pages(self.read(), "some.h")
        self.assertEqual(sorted(pages), [f"interface/{name}" for name in (
            "index.md", "moeOrder.md", "moeRun.md", "moeRunArgs_t.md", "names.json")])
        run = pages["interface/moeRun.md"]
        self.assertIn("```{c:function} int moeRun(const moeRunArgs_t *args)", run)
        self.assertIn("Runs `args.rows` rows. Then stops.\n\n`args`\n: host `[1]`\n\nAny thread.\n", run)
        self.assertIn("**Returns** {c:enumerator}`moeOrderNone`, or EXPERT\\_MAJOR\\*.", run)
        self.assertIn("**Taken by** {c:func}`moeRun`", pages["interface/moeRunArgs_t.md"])
        self.assertIn("how many; [`moeOrder`](moeOrder.md) values say where", pages["interface/moeRunArgs_t.md"])
        self.assertIn('[docs/guide/formats.md, "Row types"](../docs/guide/formats.md#row-types)',
                      pages["interface/moeOrder.md"])
        self.assertIn("| [`moeRun`](moeRun.md) | Runs `args.rows` rows. |", pages["interface/index.md"])
        self.assertIn("`row`\n: some bytes\n\n- A rule that goes on in the next line.", pages["interface/index.md"])

    def test_refuses_what_has_no_comment(self):
        self.assertEqual(self.refusal("#endif", "MOE_API int moeStop(void);\n#endif"),
                         "some.h:33: moeStop has no comment")
        self.assertEqual(self.refusal("  /* Before the field. */\n", ""), "some.h:21: moeRunArgs_t.after has no comment")
        self.assertEqual(self.refusal("/* What moeRun takes. */\n", ""), "some.h:16: moeRunArgs_t has no comment")
        self.assertEqual(self.refusal("/* ---- Functions ---- */", "#define MOE_TWO 2\n\n/* ---- Functions ---- */"),
                         "some.h:27: MOE_TWO has no comment")

    def test_refuses_what_is_no_part_of_an_interface(self):
        self.assertEqual(self.refusal("#endif", "/* Of nobody. */\nextern int moeState;\n#endif"),
                         "some.h:34: moeState: a variable has no place in the interface")

    def test_refuses_a_description_of_no_parameter(self):
        self.assertEqual(self.refusal(" *   args  host", " *   arguments  host"),
                         "some.h:32: the comment of moeRun describes arguments, which is no parameter")

    def test_has_a_page_for_each_exported_function(self):
        pages = interface_pages.pages(interface.read(ROOT / make_pages.HEADER, self.folder), make_pages.HEADER)
        exported = (ROOT / "tests/abi/exports.txt").read_text().split()
        self.assertGreater(len(exported), 30)
        for name in exported:
            self.assertIn(f"# {name}\n\n```{{c:function}}", pages[f"interface/{name}.md"])
            self.assertIn(f"| [`{name}`]({name}.md) |", pages["interface/index.md"])


    def test_the_index_is_grouped_by_what_readers_look_for(self):
        read = interface.read(ROOT / make_pages.HEADER, self.folder)
        grouped = [name for _, names in interface_pages.GROUPS for name in names]
        self.assertEqual(sorted(grouped), sorted(entry.name for entry in read.entries()))
        found = re.findall(r"^## (.*)$", interface_pages.pages(read, "x.h")["interface/index.md"], re.M)
        self.assertEqual(found, [title for title, _ in interface_pages.GROUPS])

    def test_what_is_in_no_group_keeps_its_section(self):
        self.assertEqual([title for title, _ in interface_pages.groups(self.read())], ["Types", "Functions"])

    def test_names_of_pages_are_plain(self):
        pages = interface_pages.pages(interface.read(ROOT / make_pages.HEADER, self.folder), make_pages.HEADER)
        self.assertEqual([name for name in pages if not re.fullmatch(r"[\w/.-]+", name)], [])


class Prose(unittest.TestCase):
    def test_a_line_end_that_was_chosen_ends_a_paragraph(self):
        filled = "x" * 100 + ".\n * y" + "z" * 30 + "."
        self.assertEqual(prose.markdown(interface.text_of(f"/* {filled} */"), {}).count("\n\n"), 0)
        self.assertEqual(prose.markdown(interface.text_of("/* One.\n * Two. */"), {}), "One.\n\nTwo.\n")

    def test_nothing_in_a_comment_is_markdown(self):
        self.assertEqual(prose.markdown("a*b <c> _d_ #e | f", {}), "a\\*b \\<c\\> \\_d\\_ \\#e \\| f\n")

    def test_deeper_lines_are_code(self):
        self.assertEqual(prose.markdown("So:\n    a -> b\n    -> c", {}), "So:\n\n```text\na -> b\n-> c\n```\n")


class Documents(Case):
    def of(self, **texts):
        files = {"README.md": "", "docs/README.md": "", "docs/guide/a.md": "# A\n\n## B c\n", "src/x.cc": "int x;\n",
                 "docs/images/p.svg": "<svg/>", "docs/decisions/README.md": ""}
        files |= {name.replace("__", "/").replace("_md", ".md"): text for name, text in texts.items()}
        for name, text in files.items():
            self.write(name, text)
        docs = documents.Documents(self.folder, files)
        return docs, docs.pages()

    def test_links_fit_the_site(self):
        docs, pages = self.of(docs__guide__b_md="[a](a.md#b-c) [up](../../README.md) [x](../../src/x.cc) [f](..) "
                                                "[h](https://a.b/c) [here](#d) ![p](../images/p.svg)\n")
        self.assertEqual(docs.errors, [])
        self.assertEqual(pages["docs/guide/b.md"],
                         "[a](a.md#b-c) [up](../../index.md) [x](../../src/x.cc.md) [f](../index.md) "
                         "[h](https://a.b/c) [here](#d) ![p](../images/p.svg)\n")
        self.assertEqual((docs.shown, docs.images), ({"src/x.cc"}, {"docs/images/p.svg"}))
        self.assertIn("```c++\nint x;\n```", docs.source("src/x.cc"))

    def test_code_is_left_alone(self):
        text = "`[a](no.md)`\n\n```c\nint f[2](int);\n[b](no.md)\n```\n"
        docs, pages = self.of(docs__guide__b_md=text)
        self.assertEqual((docs.errors, pages["docs/guide/b.md"]), ([], text))

    def test_a_dead_link_is_told_with_its_place(self):
        docs, _ = self.of(docs__guide__b_md="One.\n\n[x](../gone.md#y) [y](../../src/y.cc)\n")
        self.assertEqual(docs.errors, ["docs/guide/b.md:3: ../gone.md#y: there is no such file",
                                       "docs/guide/b.md:3: ../../src/y.cc: there is no such file"])

    def test_the_step_sees_all_that_the_site_shows(self):
        docs = documents.Documents(ROOT, make_pages.files_of_project(ROOT))
        documents_shown = {path for path in docs.files if path.endswith(".md")}
        docs.pages()
        self.assertGreater(len(docs.shown), 4)
        self.assertLessEqual(documents_shown | docs.shown | docs.images, set(step_inputs.files_of("site")))


    def test_a_picture_has_its_tall_version_behind_it(self):
        docs, pages = self.of(docs__guide__b_md="![p](../images/p.svg) ![q](../images/q.svg)\n",
                              **{"docs__images__q.svg": "<svg/>", "docs__images__q-tall.svg": "<svg/>"})
        self.assertEqual(pages["docs/guide/b.md"],
                         "![p](../images/p.svg) ![q](../images/q.svg)![q](../images/q-tall.svg)\n")
        self.assertEqual(docs.images, {f"docs/images/{name}.svg" for name in ("p", "q", "q-tall")})


class TheScript(unittest.TestCase):
    def run_it(self, *arguments):
        return subprocess.run([ROOT / "scripts/site.sh", *arguments], capture_output=True, text=True)

    def test_says_how_it_is_used(self):
        done = self.run_it("--help")
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertIn("Usage: scripts/site.sh [--build DIR] [OUT]\n", done.stdout)
        self.assertNotIn("set -e", done.stdout)

    def test_refuses_what_it_does_not_know(self):
        for arguments, sentence in ((["--no"], "unknown option --no"), (["a", "b"], "one folder at most"),
                                    (["--build"], "--build needs a folder")):
            done = self.run_it(*arguments)
            self.assertEqual(done.returncode, 2)
            self.assertIn(sentence, done.stderr)


class Links(Case):
    def check(self, **pages):
        for name, text in pages.items():
            self.write(name.replace("__", "/") + ".html", text)
        done = subprocess.run([sys.executable, ROOT / "scripts/site/links.py", self.folder], capture_output=True,
                              text=True)
        return done.returncode, done.stdout.splitlines()

    def test_accepts_what_is_there(self):
        self.write("a.css", "b { background: url(data:image/png;base64,xx) }")
        status, lines = self.check(
            index='<link rel="stylesheet" href="a.css?v=1"><a href="sub/b.html#x%20y">b</a><a href="#">top</a>',
            sub__b='<p id="x y"><a href="../index.html">a</a><a href="https://a.b">other</a>')
        self.assertEqual((status, lines), (0, ["links: 2 pages, 4 links, no fault"]))

    def test_finds_dead_links_and_anchors(self):
        status, lines = self.check(index='<a href="gone.html">x</a><a href="sub/b.html#y">y</a><a href="#z">z</a>',
                                   sub__b='<p id="x"><img src="../p.svg"><a href="../../x.html">x</a><a href="/">')
        self.assertEqual((status, lines), (1, ["sub/b.html: ../p.svg: there is no such file",
                                               "index.html: gone.html: there is no such file",
                                               "index.html: sub/b.html#y: there is no such anchor",
                                               "index.html: #z: there is no such anchor",
                                               "sub/b.html: ../../x.html: leaves the site",
                                               "sub/b.html: /: begins at the server's root"]))

    def test_finds_what_comes_from_elsewhere(self):
        self.write("a.css", "@import 'https://f.g/x.css'; b { src: url(//f.g/font.woff2) }")
        self.write("a.js", "import('https://f.g/x.js'); fetch('//f.g/data')")
        status, lines = self.check(index='<script src="https://c.d/x.js"></script><style>@import "//s.t/u"</style>'
                                         '<img srcset="p.png 1x, http://c.d/p.png 2x" src="data:x">')
        self.assertEqual(status, 1)
        elsewhere = [line.split(": ")[1] for line in lines if line.endswith("comes from elsewhere")]
        self.assertEqual(elsewhere, ["https://c.d/x.js", "//s.t/u", "http://c.d/p.png", "https://f.g/x.css",
                                     "//f.g/font.woff2", "https://f.g/x.js", "//f.g/data"])

    def test_an_empty_folder_is_no_site(self):
        self.assertEqual(self.check()[0], 1)


@unittest.skipUnless((SITE / "objects.inv").exists(), "scripts/site.sh has not run here")
class TheBuiltSite(unittest.TestCase):
    def test_starts_with_the_readme_and_its_picture(self):
        start = (SITE / "index.html").read_text()
        self.assertIn("<h1>moecomm", start)
        self.assertIn('src="_images/dispatch-combine.svg"', start)
        self.assertIn('<picture><source media="(max-width: 46em)" srcset="_images/dispatch-combine-tall.svg">', start)
        self.assertEqual(start.count("<img "), start.count("</picture>"))

    def test_documents_link_to_what_they_name(self):
        engines = (SITE / "docs/guide/engines.html").read_text()
        for place in ("moeRouteDispatch.html#c.moeRouteDispatch", "moeConfig_t.html#c.moeConfig_t.llSets",
                      "bits-of-flags.html#c.moeSendOnly"):
            self.assertIn(f'href="../../interface/{place}"', engines)

    def test_cpp_pages_link_to_the_c_interface_and_the_guide_to_them(self):
        handle = (SITE / "cpp/Handle.html").read_text()
        self.assertIn('href="../interface/moeHandleConfig_t.html#c.moeHandleConfig_t"', handle)
        self.assertIn('href="../../cpp/WindowMemory.html#', (SITE / "docs/guide/cpp.html").read_text())

    def test_documents_link_to_python_and_python_to_c(self):
        guide = (SITE / "docs/guide/torch.html").read_text()
        for place in ("torch.html#moecomm.torch.communicator", "handle.html#moecomm.Handle.dispatch",
                      "parts.html#moecomm.Cast"):
            self.assertEqual(guide.count(f'href="../../python/{place}"') > 0, True, place)
        self.assertIn('href="../interface/moeCast_t.html#c.moeCast_t"', (SITE / "python/parts.html").read_text())

    def test_documents_link_to_the_programs_that_they_name(self):
        if not (SITE / "programs").exists():
            self.skipTest("the site was made without a build")
        self.assertIn('href="../../programs/moe_perf.html"', (SITE / "docs/guide/tools.html").read_text())

    def test_comments_link_to_documents(self):
        self.assertIn('href="../docs/internals/protocol.html#route"', (SITE / "interface/moeRoute.html").read_text())


if __name__ == "__main__":
    if not shutil.which("doxygen"):
        print("skipped: no doxygen")
        sys.exit(77)
    unittest.main()
