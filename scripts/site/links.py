#!/usr/bin/env python3
"""Checks the links of a static site: each page, file and anchor that a page names is there, and nothing that a page
needs comes from elsewhere. Links that a reader may follow to other sites are not looked at.

Usage: links.py FOLDER   (prints a line for each fault, and exits with status 1 if there is any)
"""
import html.parser
import os
import pathlib
import re
import sys
import urllib.parse

NEEDED = {"script": ["src"], "link": ["href"], "img": ["src", "srcset"], "source": ["src", "srcset"], "video": ["src"],
          "audio": ["src"], "iframe": ["src"], "object": ["data"], "embed": ["src"], "use": ["href", "xlink:href"],
          "image": ["href", "xlink:href"]}
FOREIGN = re.compile(r"\s*(?:[a-z][a-z0-9+.-]*:)?//|\s*(?:https?|ftp):", re.I)
IN_STYLE = re.compile(r"""url\(\s*['"]?([^'")]+)|@import\s+['"]([^'"]+)""")
IN_SCRIPT = re.compile(r"""(?:\bimport\b|\bfetch\(|\.src\s*=|importScripts\()\s*\(?\s*['"]((?:https?:)?//[^'"]+)""")


class Page(html.parser.HTMLParser):
    def __init__(self, text):
        super().__init__()
        self.anchors, self.links, self.needs = {"", "top"}, [], []
        self.inside = ""
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        self.inside = tag
        values = {name: value or "" for name, value in attributes}
        self.anchors |= {values[name] for name in ("id", "name") if name in values and tag != "meta"}
        if tag == "a" and "href" in values:
            self.links.append(values["href"])
        for name in NEEDED.get(tag, []):
            if name in values and not (tag == "link" and values.get("rel") in ("canonical", "author", "license")):
                each = re.split(r",\s+", values[name]) if name == "srcset" else [values[name]]
                self.needs += [one.split(" ")[0] for one in each]
        self.needs += style_needs(values.get("style", ""))

    def handle_endtag(self, tag):
        self.inside = ""

    def handle_data(self, data):
        if self.inside == "style":
            self.needs += style_needs(data)


def style_needs(text):
    return [one or other for one, other in IN_STYLE.findall(text)]


class Site:
    def __init__(self, folder):
        self.folder = pathlib.Path(folder)
        self.pages = {path.relative_to(self.folder).as_posix(): Page(path.read_text())
                      for path in sorted(self.folder.rglob("*.html"))}

    def fault(self, where, link):
        """What is wrong with a link of a page or style sheet; "" if nothing is."""
        parts = urllib.parse.urlsplit(link)
        if parts.scheme or parts.netloc:
            return ""
        path = urllib.parse.unquote(parts.path)
        if path.startswith("/"):
            return "begins at the server's root"
        to = os.path.normpath(os.path.join(os.path.dirname(where), path)) if path else where
        if to.startswith(".."):
            return "leaves the site"
        if not (self.folder / to).is_file():
            return "there is no such file"
        if to in self.pages and urllib.parse.unquote(parts.fragment) not in self.pages[to].anchors:
            return "there is no such anchor"
        return ""

    def faults(self):
        needs = {name: page.needs for name, page in self.pages.items()}
        for pattern, find in (("*.css", style_needs), ("*.svg", style_needs), ("*.js", IN_SCRIPT.findall)):
            for path in sorted(self.folder.rglob(pattern)):
                needs[path.relative_to(self.folder).as_posix()] = find(path.read_text())
        for where, names in needs.items():
            for name in dict.fromkeys(names):
                if FOREIGN.match(name):
                    yield f"{where}: {name}: comes from elsewhere"
                elif not name.startswith(("data:", "#")) and (fault := self.fault(where, name)):
                    yield f"{where}: {name}: {fault}"
        for where, page in self.pages.items():
            for link in dict.fromkeys(page.links):
                if fault := self.fault(where, link):
                    yield f"{where}: {link}: {fault}"


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    site = Site(sys.argv[1])
    faults = list(site.faults())
    links = sum(len(page.links) for page in site.pages.values())
    print("\n".join(faults) or f"links: {len(site.pages)} pages, {links} links, no fault")
    return 1 if faults or not site.pages else 0


if __name__ == "__main__":
    sys.exit(main())
