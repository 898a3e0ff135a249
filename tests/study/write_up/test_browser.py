"""The report page in headless Chromium: no script errors, nothing fetched, claims open, readable on a phone.

Chromium is driven through a pipe (its DevTools protocol), which needs the standard library alone.
"""

from __future__ import annotations

import base64
import fcntl
import json
import os
import select
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from klsym.study.ledger.experiment_result import Finding
from klsym.study.ledger.registry import load
from klsym.study.ledger.settle_all import Judged
from klsym.study.ledger.settle_claim import settle
from klsym.study.tables.writing.table import Column, Row, Table, math, words
from klsym.study.write_up.page import write_page
from klsym.study.write_up.page_material import Figure, Material

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium")
FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
    "--disable-dev-shm-usage", "--remote-debugging-pipe",
)  # fmt: skip
PATIENCE = 60.0  # seconds for one answer, on a busy machine
CLAIMS = (
    "gradient.k3-loss", "gradient.appendix-a-sign", "sequence.token-loss-partial", "gradient.k2-unique",
    "variance.orders", "value.k3-nonnegative",
)  # fmt: skip
FAILING = "gradient.k1-loss"  # made to fail
EVERY = sorted((*CLAIMS, FAILING))
PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="


class Browser:
    """One Chromium, one page; `events` keeps what the page reported."""

    def __init__(self, profile: Path) -> None:
        into, self.write = (_high(fd) for fd in os.pipe())
        self.read, out = (_high(fd) for fd in os.pipe())

        def places() -> None:  # the pipe is expected at 3 and 4
            os.dup2(into, 3)
            os.dup2(out, 4)

        command = [str(CHROMIUM), *FLAGS, f"--user-data-dir={profile}", "about:blank"]
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        self.process = subprocess.Popen(command, preexec_fn=places, pass_fds=(3, 4), **quiet)  # type: ignore
        os.close(into)
        os.close(out)
        self.buffer, self.number, self.session = b"", 0, ""
        self.events: list[dict[str, Any]] = []
        target = self.send("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.send("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.send(f"{domain}.enable")

    def send(self, method: str, **parameters: Any) -> Any:
        self.number += 1
        message: dict[str, Any] = {"id": self.number, "method": method, "params": parameters}
        if self.session:
            message["sessionId"] = self.session
        os.write(self.write, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._next()
            if answer.get("id") == self.number:
                assert "error" not in answer, answer
                return answer["result"]
            self.events.append(answer)

    def _next(self) -> dict[str, Any]:
        end = time.monotonic() + PATIENCE
        while b"\0" not in self.buffer:
            ready, _, _ = select.select([self.read], [], [], max(0.0, end - time.monotonic()))
            chunk = os.read(self.read, 1 << 20) if ready else b""
            assert chunk, "Chromium does not answer"
            self.buffer += chunk
        first, _, self.buffer = self.buffer.partition(b"\0")
        found: dict[str, Any] = json.loads(first)
        return found

    def open(self, address: str, width: int = 1200, height: int = 900, dark: bool = False) -> None:
        """Load a page anew and wait until it has loaded."""
        self._go("about:blank")  # a new fragment alone would not load the page again
        self.send(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=False,
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.send("Emulation.setEmulatedMedia", features=[scheme])
        self._go(address)

    def _go(self, address: str) -> None:
        self.events.clear()
        self.send("Page.navigate", url=address)
        while not any(event.get("method") == "Page.loadEventFired" for event in self.events):
            self.events.append(self._next())

    def ask(self, expression: str) -> Any:
        """The value of a JavaScript expression on the page."""
        found = self.send("Runtime.evaluate", expression=expression, returnByValue=True)
        assert "exceptionDetails" not in found, found
        return found["result"].get("value")

    def complaints(self) -> list[Any]:
        """Script errors, refused loads, anything in the console."""
        methods = ("Runtime.exceptionThrown", "Runtime.consoleAPICalled", "Log.entryAdded")
        return [event for event in self.events if event.get("method") in methods]

    def requests(self) -> list[str]:
        sent = (e["params"]["request"] for e in self.events if e.get("method") == "Network.requestWillBeSent")
        return [request["url"] for request in sent]

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self.read)
        os.close(self.write)


def _high(descriptor: int) -> int:
    """The same pipe under a number that is not in the way of 3 and 4."""
    moved = fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, 10)
    os.close(descriptor)
    return moved


def _figure() -> Figure:
    wide = tuple(str(number) * 8 for number in range(12))
    return Figure(
        "pixel", "a pixel", base64.b64decode(PIXEL), setup="none", findings=(Finding("it is small", True),),
        header=wide, rows=(wide,),
    )  # fmt: skip


def _table() -> Table:
    columns = tuple(Column(f"column {i}", words(f"a wide column {i}")) for i in range(9))
    formula = math(r"\mathbb{E}_q[k_1] + \mathbb{E}_q[k_2] = \mathrm{KL}")
    return Table("wide", words("A table wider than a phone."), columns, (Row((formula,) * 9),))


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> str:
    known = load()
    results = [Judged(settle(known[id]), ()) for id in CLAIMS]
    assert not any(result.error for result in results)
    results.append(Judged(settle(known[FAILING]), ((False, "the oracle disagrees"),)))
    folder = tmp_path_factory.mktemp("page")
    written = folder / "report.html"
    written.write_text(write_page(Material(results, None, [_figure()], [_table()])), encoding="utf-8")
    return written.as_uri()


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    started = Browser(tmp_path_factory.mktemp("profile"))
    yield started
    started.close()


OPEN = "[...document.querySelectorAll('details.claim[open]')].map(claim => claim.id)"
VISIBLE = "[...document.querySelectorAll('details.claim:not([hidden])')].map(claim => claim.id)"


def click(browser: Browser, selector: str) -> None:
    """A press of the mouse in the middle of an element."""
    box = browser.ask(
        f"(() => {{ const e = document.querySelector({json.dumps(selector)});"
        " e.scrollIntoView({block: 'center'}); const b = e.getBoundingClientRect();"
        " return [b.x + b.width / 2, b.y + b.height / 2]; })()"
    )
    for kind in ("mousePressed", "mouseReleased"):
        browser.send("Input.dispatchMouseEvent", type=kind, x=box[0], y=box[1], button="left", clickCount=1)


def test_the_page_loads_without_complaint_and_fetches_nothing(browser: Browser, address: str) -> None:
    browser.open(address)
    click(browser, "#open")
    assert browser.ask(OPEN) != []
    assert browser.complaints() == []
    assert [url for url in browser.requests() if url != address and not url.startswith("data:")] == []


def test_a_complaint_and_a_request_would_be_noticed(browser: Browser, tmp_path: Path) -> None:
    bad = tmp_path / "bad.html"
    bad.write_text("<script>nothing.here()</script><img src='http://127.0.0.1:9/x.png'>", encoding="utf-8")
    browser.open(bad.as_uri())
    assert browser.complaints() != []
    assert any(url.startswith("http:") for url in browser.requests())


def test_a_claim_opens_on_a_click(browser: Browser, address: str) -> None:
    browser.open(address)
    assert browser.ask(OPEN) == [FAILING]  # what failed is seen without a click
    click(browser, "[id='gradient.k3-loss'] > summary .id")
    assert sorted(browser.ask(OPEN)) == [FAILING, "gradient.k3-loss"]
    assert browser.ask("document.querySelector('[id=\"gradient.k3-loss\"] .chain').offsetHeight") > 100


def test_an_area_is_folded_unless_a_claim_of_it_failed(browser: Browser, address: str) -> None:
    browser.open(address)
    folded = "[...document.querySelectorAll('details.area')].map(area => [area.id, area.open])"
    failed_area = f"area.{FAILING.partition('.')[0]}"
    areas = dict(browser.ask(folded))
    assert areas == {area: area == failed_area for area in areas} and len(areas) > 1
    assert browser.ask("document.body.scrollHeight") < 6000
    assert not browser.ask("document.querySelector('#rules details').open")
    browser.open(f"{address}#rules")
    assert browser.ask("document.querySelector('#rules details').open")


def test_a_claim_opens_on_its_fragment(browser: Browser, address: str) -> None:
    browser.open(f"{address}#gradient.k2-unique")
    assert sorted(browser.ask(OPEN)) == [FAILING, "gradient.k2-unique"]
    top = browser.ask("document.getElementById('gradient.k2-unique').getBoundingClientRect().top")
    assert 0 <= top < 900
    browser.open(f"{address}#no.such-claim")
    assert browser.ask(OPEN) == [FAILING] and browser.complaints() == []


def test_the_search_leaves_the_claims_that_have_its_words(browser: Browser, address: str) -> None:
    browser.open(address)
    ask = (
        "(() => {{ const s = document.getElementById('search'); s.value = {};"
        " s.dispatchEvent(new Event('input')); }})()"
    )
    browser.ask(ask.format("'CORRECTED gradient'"))
    assert browser.ask(VISIBLE) == ["gradient.appendix-a-sign"]
    assert browser.ask("document.getElementById('found').textContent") == "1"
    browser.ask(ask.format("'nothing has this'"))
    assert browser.ask(VISIBLE) == []
    browser.ask(ask.format("''"))
    assert sorted(browser.ask(VISIBLE)) == EVERY


def test_all_open_and_close(browser: Browser, address: str) -> None:
    browser.open(address)
    click(browser, "#open")
    assert sorted(browser.ask(OPEN)) == EVERY
    click(browser, "#close")
    assert browser.ask(OPEN) == []


def press(browser: Browser, key: str, text: str = "") -> None:
    for kind in ("keyDown", "keyUp"):
        browser.send("Input.dispatchKeyEvent", type=kind, key=key, text=text if kind == "keyDown" else "",
                     windowsVirtualKeyCode={"Enter": 13}.get(key, 0))  # fmt: skip


def test_the_keyboard_is_enough(browser: Browser, address: str) -> None:
    browser.open(address)
    press(browser, "/", "/")
    assert browser.ask("document.activeElement.id") == "search"
    press(browser, "/", "/")  # now it is a letter
    assert browser.ask("document.getElementById('search').value") == "/"
    browser.open(address)
    browser.ask("document.querySelector('[id=\"gradient.k3-loss\"] > summary').focus()")
    press(browser, "Enter", "\r")
    assert "gradient.k3-loss" in browser.ask(OPEN)
    shown = "getComputedStyle(document.activeElement).outlineStyle"
    assert browser.ask(shown) == "solid"


def test_every_link_of_the_page_leads_into_it(browser: Browser, address: str) -> None:
    browser.open(address)
    lost = (
        "[...document.querySelectorAll('a[href^=\"#\"]')].map(a => decodeURIComponent(a.hash.slice(1)))"
        ".filter(id => !document.getElementById(id))"
    )
    assert browser.ask(lost) == []
    assert browser.ask("document.querySelectorAll('nav a').length") >= 5


def test_a_wide_table_is_stacked_on_a_phone(browser: Browser, address: str) -> None:
    shown = "getComputedStyle(document.querySelector('#table-wide td'), '::before').content"
    browser.open(address, width=1200)
    assert browser.ask(shown) == "none"
    browser.open(address, width=390)
    assert browser.ask(shown) == '"a wide column 0"'
    inside = "document.querySelector('#table-wide').scrollWidth <= document.documentElement.clientWidth"
    assert browser.ask(inside)


def test_the_page_prints_what_is_open(browser: Browser, address: str) -> None:
    sizes = []
    for opened in ("false", "true"):
        browser.open(address)
        browser.ask(f"document.querySelectorAll('details').forEach(box => {{ box.open = {opened}; }})")
        sizes.append(len(base64.b64decode(browser.send("Page.printToPDF")["data"])))
    assert sizes[0] < sizes[1]


@pytest.mark.parametrize("width", [390, 320, 768])
def test_the_page_never_scrolls_sideways(browser: Browser, address: str, width: int) -> None:
    browser.open(address, width=width, height=844)
    browser.ask("document.querySelectorAll('details').forEach(box => { box.open = true; })")
    assert browser.ask("document.documentElement.scrollWidth <= document.documentElement.clientWidth")
    boxes = "[...document.querySelectorAll('.formula, .scroll, .links')]"
    scrolling = f"{boxes}.filter(box => box.scrollWidth > box.clientWidth).length"
    assert browser.ask(scrolling) > 0  # something is wide, and scrolls in its own box


def test_dark_and_light_differ_and_text_stands_out(browser: Browser, address: str) -> None:
    seen = []
    for dark in (False, True):
        browser.open(address, dark=dark)
        seen.append(browser.ask("getComputedStyle(document.body).backgroundColor"))
        browser.ask("document.querySelectorAll('details.claim').forEach(box => { box.open = true; })")
        for selector in ("body", "summary small", ".verdict", ".failure", "nav.bar a", "main a", ".quiet"):
            assert browser.ask(CONTRAST.format(json.dumps(selector))) >= 4.5, (dark, selector)
    assert seen[0] != seen[1]


# WCAG 2: the ratio of the luminances of the text and of what is behind it.
CONTRAST = """(() => {{
  const light = colour => {{
    const [r, g, b] = colour.match(/[0-9.]+/g).map(Number).map(v => v / 255)
      .map(v => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  }};
  const behind = e => {{
    const colour = getComputedStyle(e).backgroundColor;
    return colour === "rgba(0, 0, 0, 0)" ? behind(e.parentElement) : colour;
  }};
  const chosen = [...document.querySelectorAll({})];
  return Math.min(chosen.length ? 99 : 0, ...chosen.map(e => {{
    const front = light(getComputedStyle(e).color), back = light(behind(e));
    return (Math.max(front, back) + 0.05) / (Math.min(front, back) + 0.05);
  }}));
}})()"""


def test_without_a_script_a_claim_still_opens(browser: Browser, address: str) -> None:
    browser.send("Emulation.setScriptExecutionDisabled", value=True)
    try:
        browser.open(address)
        click(browser, "[id='gradient.k3-loss'] > summary .id")
        assert sorted(browser.ask(OPEN)) == [FAILING, "gradient.k3-loss"]
    finally:
        browser.send("Emulation.setScriptExecutionDisabled", value=False)
