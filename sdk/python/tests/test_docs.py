# SPDX-License-Identifier: Apache-2.0
"""The reference: Sphinx builds it without a warning, it has each public name, and its links lead somewhere."""

import html.parser
import importlib.util
import subprocess
import sys
import tempfile
import unittest
import urllib.parse
from pathlib import Path

from programs import EXAMPLES
from test_help import MODULES

FOLDER = EXAMPLES.parent / "python" / "docs"


class Page(html.parser.HTMLParser):
    """The links of a page, and the places that links may name."""

    def __init__(self, text):
        super().__init__()
        self.links, self.places = [], set()
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        for name, value in attributes:
            if name in ("href", "src"):
                self.links.append(value)
            if name == "id" or (tag == "a" and name == "name"):
                self.places.add(value)


def dead_links(folder):
    """Links of the pages in a folder that lead nowhere in it. Others, to the web, are none of a reference."""
    pages = {p.resolve(): Page(p.read_text()) for p in folder.rglob("*.html")}
    dead = []
    for path, page in pages.items():
        for link in page.links:
            parts = urllib.parse.urlsplit(link)
            target = (path.parent / urllib.parse.unquote(parts.path)).resolve() if parts.path else path
            if parts.scheme or parts.netloc:
                continue
            place = urllib.parse.unquote(parts.fragment)
            if not target.exists() or (place and target in pages and place not in pages[target].places):
                dead.append(f"{path.name}: {link}")
    return dead


class Links(unittest.TestCase):
    def test_dead_links_are_found(self):
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            (folder / "a.html").write_text('<a id="here" href="b.html#there"></a><a href="#here"></a><a href="c.html"></a>')
            (folder / "b.html").write_text('<a href="a.html#here"></a><a href="https://example.org/x"></a>')
            self.assertEqual(sorted(dead_links(folder)), ["a.html: b.html#there", "a.html: c.html"])


class Reference(unittest.TestCase):
    def test_it_builds_and_is_complete(self):
        if importlib.util.find_spec("sphinx") is None:
            self.skipTest("needs sphinx")
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name) / "html"
            sphinx = [sys.executable, "-m", "sphinx", "-b", "html", "-q", "-W", "--keep-going"]
            run = subprocess.run(
                [*sphinx, "-d", str(Path(name) / "doctrees"), str(FOLDER), str(folder)], capture_output=True, text=True
            )
            self.assertEqual((run.returncode, run.stdout), (0, ""), run.stderr)
            self.assertEqual(dead_links(folder), [])
            places = set().union(*(Page(p.read_text()).places for p in folder.glob("*.html")))
            missing = []
            for module_name, module in MODULES.items():
                for public in module.__all__:
                    thing = getattr(module, public)
                    if callable(thing) and not str(thing).startswith("typing."):
                        missing += {f"{module_name}.{public}"} - places
            self.assertEqual(missing, [])


if __name__ == "__main__":
    unittest.main()
