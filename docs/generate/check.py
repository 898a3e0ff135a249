"""Check every page of the built site: python -m generate.check FOLDER.

Statically: internal links and anchors, LaTeX outside of code, and what the search finds.  In headless
Chromium, from a local server, in frames 400 and 1280 pixels wide: overflow, requests to other hosts, and the
brightness in both schemes.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import tempfile
import threading
from functools import partial
from html.parser import HTMLParser
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from importlib import import_module
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urldefrag, urljoin

WIDTHS = (400, 1280)
CODE = ("script", "style", "pre", "code", "math", "title")
LATEX = re.compile(
    r"\\(?:frac|mathbb|mathrm|left|right|nabla|rho|mu|begin|text|tfrac|Vert)\b|\$\$|\$[^$\s][^$]*\$"
)
OUTSIDE = re.compile(r"^(?:https?:|mailto:|data:|javascript:)")
VERSION = re.compile(r"\?v=\w+$")  # of a style or a script
APART = "try/"  # the page that runs klsym has its own target and its own check
WITHOUT_TEXT = ("genindex.html", "search.html", "py-modindex.html")  # nothing to describe
SEARCHED = Path(__file__).parents[1] / "search_words.txt"
TYPED = {"entropy": "tasks/entropy.html", "grpo": "tasks/grpo.html", "KL008": "KL008"}  # and where it leads
FLAGS = ("--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
         "--virtual-time-budget=600000",
         "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1", "--window-size=1280,900")  # fmt: skip
PROBE = """<!DOCTYPE html><meta charset="utf-8"><body><script>
const pages = %s, found = [], DRAWERS = ".toc-drawer, .sidebar-drawer";
const scheme = new URLSearchParams(location.search).get("scheme");
localStorage.setItem("theme", scheme);
const open = (page, width) => new Promise(done => {
  const frame = document.createElement("iframe");
  frame.style.cssText = "width: " + width + "px; height: 800px; border: 0";
  frame.onload = () => {
    const inner = frame.contentDocument, view = frame.contentWindow, root = inner.documentElement;
    inner.querySelectorAll("details").forEach(one => { one.open = true; });
    const urls = view.performance.getEntriesByType("resource").map(entry => entry.name);
    const colour = view.getComputedStyle(inner.body).backgroundColor.match(/\\d+/g).map(Number);
    const seen = root.clientWidth, right = one => one.getBoundingClientRect().right;
    const cut = one => view.getComputedStyle(one).overflowX !== "visible" && right(one) <= seen + 1;
    const boxed = one => { for (let box = one; box !== inner.body; box = box.parentElement)
      if ((cut(box) && !box.matches(".content")) || box.matches(DRAWERS)) return true; return false; };
    const wide = [...inner.body.querySelectorAll("*")].filter(one => right(one) > seen + 1 && !boxed(one));
    found.push({page, width,
                wide: wide.slice(0, 2).map(one => `${one.tagName} ${one.className} ${right(one)}`),
                light: colour[0] + colour[1] + colour[2],
                outside: urls.filter(url => !url.startsWith(location.origin) && !url.startsWith("data:"))});
    frame.remove(); done();
  };
  frame.src = page; document.body.append(frame);
});
const search = words => new Promise(done => {
  const frame = document.createElement("iframe");
  frame.onload = () => {
    const inner = frame.contentDocument, box = inner.querySelector("input.sidebar-search");
    const results = () => [...inner.querySelectorAll("ol.instant a")].map(one => one.href);
    box.value = words;
    box.dispatchEvent(new Event("input"));
    let left = 100;
    const wait = () => results().length || !left-- ? done(results()) : setTimeout(wait, 50);
    wait();
  };
  frame.src = "guides/off-policy.html"; document.body.append(frame);
});
(async () => {
  for (const width of %s) for (const page of pages) await open(page, width);
  const instant = {};
  for (const words of %s) instant[words] = await search(words);
  document.body.innerHTML = "<pre id=found></pre>";
  document.getElementById("found").textContent = JSON.stringify({rows: found, instant});
})();
</script></body>
"""


class Page(HTMLParser):
    """The links, the anchors and the text of a page."""

    def __init__(self, markup: str) -> None:
        super().__init__()
        self.links: list[str] = []
        self.ids: set[str] = set()
        self.text: list[str] = []
        self.inside: list[str] = []
        self.feed(markup)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            if name in ("href", "src") and value:
                self.links.append(value)
            if name in ("id", "name") and value:
                self.ids.add(value)
        if tag in CODE:
            self.inside.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if self.inside and self.inside[-1] == tag:
            self.inside.pop()

    def handle_data(self, data: str) -> None:
        if not self.inside:
            self.text.append(data)


def static_faults(folder: Path) -> list[str]:
    """Links and anchors that lead nowhere, and LaTeX that is shown as it is."""
    pages = {
        path.relative_to(folder).as_posix(): Page(path.read_text(encoding="utf-8")) for path in html(folder)
    }
    faults = []
    for name, page in pages.items():
        for link in page.links:
            target, anchor = urldefrag(urljoin(name, unquote(VERSION.sub("", link))))
            if OUTSIDE.match(link):
                continue
            if not (folder / target).is_file():
                faults.append(f"{name}: no page {link}")
            elif anchor and target in pages and anchor not in pages[target].ids:
                faults.append(f"{name}: no anchor {link}")
        faults += [f"{name}: LaTeX {found[0][:60]!r}" for found in LATEX.finditer(" ".join(page.text))]
    return faults


def head_faults(folder: Path) -> list[str]:
    """Pages without a description or a picture for links, without copy buttons, or without the top bar."""
    wanted = ('property="og:image"', 'name="description"', "copybutton.js", 'class="try"')
    faults = []
    for path in html(folder):
        text = path.read_text(encoding="utf-8")
        name = path.relative_to(folder).as_posix()
        missing = [part for part in wanted if part not in text and name not in WITHOUT_TEXT]
        faults += [f"{name}: no {part}" for part in missing]
    picture = folder / "_static" / "social.png"
    return faults if picture.is_file() else [*faults, "no _static/social.png"]


def search_faults(folder: Path) -> list[str]:
    """Words that the search of the site does not find, or not on the page where they are explained.

    Sphinx's search shows the pages that have all the words, by their stems.
    """
    language = import_module("sphinx.search.en").SearchEnglish({})  # installed for the site alone
    source = (folder / "searchindex.js").read_text(encoding="utf-8")
    index = json.loads(source[source.index("(") + 1 : source.rindex(")")])
    faults = []
    for line in SEARCHED.read_text(encoding="utf-8").splitlines():
        phrase, _, page = line.partition(" : ")
        if not page:
            continue
        typed = re.findall(r"\w+", phrase.lower())
        words = [language.stem(word) for word in typed if word not in language.stopwords]
        names = {index["docnames"][n] for n in _pages_with(words, index)}
        if page not in names:
            faults.append(f"search: {phrase!r} does not find {page}")
    return faults


def _pages_with(words: list[str], index: dict[str, Any]) -> set[int]:
    """The numbers of the pages that have each of these stems, in their text or their title."""
    pages = [
        {n for part in ("terms", "titleterms") for n in _numbers(index[part].get(word, []))} for word in words
    ]
    return set.intersection(*pages) if pages else set()


def _numbers(found: int | list[int]) -> list[int]:
    return [found] if isinstance(found, int) else found


def html(folder: Path) -> list[Path]:
    """The pages of the documentation."""
    return [
        path
        for path in sorted(folder.rglob("*.html"))
        if not path.relative_to(folder).as_posix().startswith(APART)
    ]


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *_: Any) -> None:
        pass


def browser_faults(folder: Path, chromium: str) -> list[str]:
    """Overflow, outside requests and bright pages in the dark scheme, as Chromium sees them."""
    names = [path.relative_to(folder).as_posix() for path in html(folder)]
    with tempfile.TemporaryDirectory() as scratch:
        served = Path(scratch) / "site"
        shutil.copytree(folder, served)
        probe = PROBE % (json.dumps(names), list(WIDTHS), json.dumps([*TYPED]))
        (served / "probe.html").write_text(probe, encoding="utf-8")
        server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(served)))
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            address = f"http://127.0.0.1:{server.server_port}/probe.html"
            return [
                fault
                for scheme in ("light", "dark")
                for fault in _seen(chromium, address, scheme, scratch, names)
            ]
        finally:
            server.shutdown()


def _seen(chromium: str, address: str, scheme: str, scratch: str, names: list[str]) -> list[str]:
    profile = f"--user-data-dir={scratch}/{scheme}"
    command = [chromium, *FLAGS, profile, "--dump-dom", f"{address}?scheme={scheme}"]
    shown = subprocess.run(command, capture_output=True, text=True, timeout=600, check=True).stdout
    text = re.search(r'<pre id="found">(.*?)</pre>', shown, re.DOTALL)
    if not text:
        return [f"Chromium did not finish in the {scheme} scheme"]
    seen = json.loads(text[1].replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&"))
    rows = seen["rows"]
    faults = [
        f"{row['page']}: too wide ({scheme}, {row['width']}): {row['wide']}" for row in rows if row["wide"]
    ]
    faults += [f"{row['page']}: requests {row['outside']}" for row in rows if row["outside"]]
    wrong = [row["page"] for row in rows if (row["light"] < 384) != (scheme == "dark")]
    faults += [f"{page}: not in the {scheme} scheme" for page in wrong]
    faults += [
        f"search: typing {words!r} does not lead to {page}"
        for words, page in TYPED.items()
        if not any(page in address for address in seen["instant"][words])
    ]
    return faults if len(rows) == len(WIDTHS) * len(names) else [*faults, f"only {len(rows)} pages were seen"]


def main(folder: Path) -> int:
    chromium = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if not (folder / "index.html").is_file():
        sys.exit(f"no site in {folder}: run `make site` first")
    if chromium is None:
        sys.exit("site-check needs Chromium (Debian: chromium)")
    faults = [
        *static_faults(folder),
        *head_faults(folder),
        *search_faults(folder),
        *browser_faults(folder, chromium),
    ]
    print(*faults, sep="\n", end="\n" if faults else "")
    print(f"{len(html(folder))} pages checked, {len(faults)} faults")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
