"""How the report page looks, and the little it does: CSS, marks drawn as shapes, a script without which it
is complete."""

from __future__ import annotations

from html import escape

# Each verdict has a shape of its own, so that none is told by its colour alone.
MARKS = {
    "proved": '<path d="M3 8.5 6.5 12 13 4.5"/>',
    "refuted": '<path d="M4 4l8 8M12 4l-8 8"/>',
    "corrected": '<path d="M2.5 8h7M2.5 8l3-3M2.5 8l3 3M13 3v10"/>',
    "exact": '<path d="M3 6h10M3 10h10"/>',
    "computed": '<circle cx="4" cy="11" r="1"/><circle cx="8" cy="7" r="1"/><circle cx="12" cy="4" r="1"/>',
    "failed": '<path d="M8 2.5v7M8 12.5v.6"/>',
}


def mark(verdict: str, words: str = "") -> str:
    """A shape, a colour and a word."""
    shape = f'<svg viewBox="0 0 16 16" aria-hidden="true">{MARKS[verdict]}</svg>'
    return f'<span class="verdict {verdict}">{shape}{escape(words or verdict)}</span>'


STYLE = """
:root {
  color-scheme: light dark;
  --page: #fcfcfa; --raised: #fff; --ink: #1d1f21; --quiet: #5b6066; --line: #e1e0da; --faint: #f3f2ed;
  --link: #0a5594; --proved: #00664c; --refuted: #a63a00; --corrected: #85346f; --exact: #0a5594;
  --computed: #6f5300; --failed: #b00020;
  --serif: "Source Serif 4", Charter, "Bitstream Charter", "Iowan Old Style", Georgia, serif;
  --sans: system-ui, -apple-system, "Segoe UI", Roboto, "Noto Sans", "Liberation Sans", sans-serif;
  --mono: ui-monospace, "SF Mono", Menlo, Consolas, "DejaVu Sans Mono", monospace;
}
@media (prefers-color-scheme: dark) {
  :root {
    --page: #15171a; --raised: #1b1e22; --ink: #e4e4e0; --quiet: #a0a5ab; --line: #33373c; --faint: #212529;
    --link: #7fbcf0; --proved: #4fcfa6; --refuted: #ff9a5c; --corrected: #e7a3d0; --exact: #7fbcf0;
    --computed: #e3c25c; --failed: #ff8a94;
  }
}
* { box-sizing: border-box; }
html { scroll-padding-top: 4.2rem; -webkit-text-size-adjust: 100%; }
body { margin: 0; background: var(--page); color: var(--ink); font: 1rem/1.55 var(--serif);
  overflow-wrap: break-word; }
main, header.top { max-width: 62rem; margin: 0 auto; padding: 0 1.25rem; }
header.top { padding-top: 3rem; }
h1 { font: 600 2.1rem/1.2 var(--serif); letter-spacing: -.01em; margin: 0 0 .6rem; text-wrap: balance; }
h2 { font: 600 1.45rem/1.3 var(--serif); margin: 3.2rem 0 .6rem; padding-top: .4rem; }
h3 { font: 600 1.08rem/1.35 var(--serif); margin: 2.2rem 0 .5rem; }
h4 { font: 600 .78rem/1.4 var(--sans); color: var(--quiet); margin: 1.3rem 0 .35rem; letter-spacing: .01em; }
p { margin: .5rem 0; max-width: 46rem; }
a { color: var(--link); text-decoration-thickness: .06em; text-underline-offset: .18em; }
code { font: .86em var(--mono); }
.lead { font-size: 1.12rem; max-width: 46rem; }
.skip { position: absolute; left: -100vw; } .skip:focus { position: static; }
.status { font: 600 1.02rem/1.5 var(--sans); margin: 1.2rem 0; padding: .5rem .9rem; max-width: 46rem;
  border: 1.5px solid var(--v); border-radius: 4px; }
.status .verdict { font-size: 1.02rem; white-space: normal; }
.status p { margin: 0; } .status ul { margin: .3rem 0 0; padding-left: 1.2rem; font-size: .9rem; }
dl.facts-of-run { display: grid; grid-template-columns: 9.5rem minmax(0, 1fr); gap: .45rem 1rem; margin: 0;
  max-width: 58rem; font: .9rem/1.55 var(--sans); }
.facts-of-run dt { color: var(--quiet); } .facts-of-run dd { margin: 0; }
sup { line-height: 0; font-size: .78em; }
.quiet, small { color: var(--quiet); }
.failure { color: var(--failed); font-weight: 600; }
:focus-visible { outline: 2px solid var(--link); outline-offset: 2px; border-radius: 2px; }

math { font-family: "STIX Two Math", "Latin Modern Math", "Cambria Math", "Noto Sans Math", math;
  font-size: 1.06em; }
math[display="block"] { display: inline math; }
.formula { overflow-x: auto; overflow-y: hidden; padding: .22em 0 .22em 1.6em; text-indent: -1.6em;
  scrollbar-width: thin; min-width: 0; line-height: 1.5; }
.formula math { text-indent: 0; margin: .18em 0; } .sheet td math { margin: .1em 0; }
:not(.formula) > math { line-height: 1; }
.scroll { overflow-x: auto; scrollbar-width: thin; max-width: 100%; }

nav.bar { position: sticky; top: 0; z-index: 2; background: var(--page); border-bottom: 1px solid var(--line);
  margin-top: 1.6rem; font: .88rem/1.4 var(--sans); }
nav.bar > div { max-width: 62rem; margin: 0 auto; padding: .55rem 1.25rem; display: flex; flex-wrap: wrap;
  gap: .4rem 1.1rem; align-items: center; }
.links { display: flex; gap: .4rem 1.1rem; white-space: nowrap; }
nav.bar a { text-decoration: none; }
nav.bar a:hover { text-decoration: underline; }
.tools { display: none; gap: .5rem; align-items: center; margin-left: auto; }
.script .tools { display: flex; }
.tools input { font: inherit; width: 13rem; max-width: 42vw; padding: .25rem .55rem; color: inherit;
  background: var(--raised); border: 1px solid var(--line); border-radius: 4px; }
.tools button { font: inherit; padding: .25rem .6rem; color: inherit; background: var(--faint);
  border: 1px solid var(--line); border-radius: 4px; cursor: pointer; white-space: nowrap; }
#found { color: var(--quiet); min-width: 2.2em; text-align: right; font-variant-numeric: tabular-nums; }

.verdict { font: 600 .82rem/1.5 var(--sans); white-space: nowrap; color: var(--v); }
.verdict svg { width: .95em; height: .95em; margin-right: .4em; vertical-align: -.1em; fill: none;
  stroke: currentColor; stroke-width: 2.1; stroke-linecap: round; stroke-linejoin: round; }
.proved { --v: var(--proved); } .refuted { --v: var(--refuted); } .corrected { --v: var(--corrected); }
.exact { --v: var(--exact); } .computed { --v: var(--computed); } .failed { --v: var(--failed); }
.legend { display: flex; flex-wrap: wrap; gap: 0 1.4rem; margin: 0; padding: 0; list-style: none; }
.legend .verdict { font-size: inherit; }
a.claim-id { font-size: .92em; text-decoration: none; white-space: nowrap; }
a.claim-id:hover { text-decoration: underline; }
ul.contents { columns: 2 20rem; column-gap: 2rem; padding-left: 1.1rem; margin: .6rem 0 1.4rem;
  font: .88rem/1.6 var(--sans); }
ul.short { list-style: none; margin: .4rem 0; padding: 0; }
.short > li { display: grid; grid-template-columns: minmax(0, 2fr) minmax(0, 3fr); gap: 0 1.6rem;
  align-items: center; padding: .35rem 0; border-top: 1px solid var(--line); }
.short > li:last-child { border-bottom: 1px solid var(--line); }
.erratum { border-top: 1px solid var(--line); padding: .3rem 0 .6rem; break-inside: avoid; }
.erratum .facts { margin: .1rem 0 .2rem; }
.pair { display: grid; grid-template-columns: minmax(0, 2fr) minmax(0, 3fr); gap: .2rem 1.6rem; }

details.claim { border-top: 1px solid var(--line); }
section.area details.claim:last-of-type { border-bottom: 1px solid var(--line); }
details.claim > summary { display: grid; grid-template-columns: 7rem 15.5rem minmax(0, 1fr); gap: 0 1rem;
  align-items: baseline; padding: .5rem .4rem; cursor: pointer; list-style: none; }
details.claim > summary::-webkit-details-marker { display: none; }
details.claim > summary:hover { background: var(--faint); }
details.claim[open] > summary { background: var(--faint); }
summary .id { font: .82rem/1.45 var(--mono); overflow-wrap: anywhere; }
summary .id small { display: block; font: .76rem/1.4 var(--sans); }
summary .words { font-size: .95rem; line-height: 1.45; }
summary .more { font: .76rem var(--sans); color: var(--quiet); }
.body { padding: .3rem .4rem 1.8rem 8.4rem; }
.body > p:first-child:not(.facts) { font-size: 1.04rem; }
.facts { font: .84rem/1.55 var(--sans); color: var(--quiet); }
.part { margin-top: 1.1rem; padding-top: .1rem; }
.part + .part { border-top: 1px dotted var(--line); }
.stated { font-size: 1.06rem; }
.agrees { font: .88rem/1.5 var(--sans); } .agrees .verdict { font-size: inherit; }
.sides { font: .88rem/1.5 var(--sans); }
.part h4 { margin-top: .8rem; }

ol.chain { list-style: none; margin: .2rem 0 .4rem; padding: 0; display: grid;
  grid-template-columns: 1.7rem minmax(0, max-content) minmax(8rem, max-content); gap: .04rem .5rem; }
.chain > li { display: grid; grid-column: 1 / -1; grid-template-columns: subgrid;
  align-items: first baseline; }
.chain .sign { text-align: center; }
.chain .rule { font: .8rem/1.4 var(--sans); color: var(--quiet); padding-left: 1.2rem; max-width: 17rem; }
.chain .rule a { color: inherit; text-decoration-style: dotted; }
.chain .rule a:hover { color: var(--link); }
ol.steps { grid-template-columns: minmax(0, max-content) minmax(8rem, max-content); }
ul.plain { margin: .2rem 0; padding-left: 1.1rem; max-width: 46rem; }
ul.plain li { margin: .1rem 0; }
.hypotheses { font: .86rem/1.5 var(--sans); }

table { border-collapse: collapse; font: .84rem/1.45 var(--sans); font-variant-numeric: tabular-nums;
  border-top: 1.5px solid currentColor; border-bottom: 1.5px solid currentColor; margin: .3rem 0 .6rem; }
caption { text-align: left; color: var(--quiet); padding: 0 0 .5rem; font: .92rem/1.5 var(--serif);
  position: sticky; left: 0; max-width: min(46rem, calc(100vw - 3.2rem)); }
th, td { padding: .22rem .9rem .22rem 0; text-align: left; vertical-align: baseline; }
th:last-child, td:last-child { padding-right: 0; }
thead th { border-bottom: 1px solid var(--quiet); font-weight: 600; vertical-align: bottom; }
tbody th { font-weight: 400; }
tbody th[colspan], th[scope="rowgroup"] { padding-top: .6rem; color: var(--quiet); }
td.n, th.n { text-align: right; white-space: nowrap; }
table.counts td, table.counts th { padding-right: 1.6rem; }
td math, caption math { font-size: 1.14em; }
.sheet a.claim-id { white-space: normal; overflow-wrap: anywhere; }
.sheet td:last-child { min-width: 8.4rem; }
.sheet td { min-width: 5rem; line-height: 1.6; } .sheet td:has(wbr) { min-width: 10rem; }
.sheet tbody tr:not(:first-child) td { border-top: 1px solid var(--faint); }
table.checks td:first-child { padding-left: 1rem; } table.checks td.quiet { padding-left: 1rem; }
.rules td, .rules th { padding-top: .45rem; padding-bottom: .45rem; }
.rules th { white-space: nowrap; }
.sheet { margin: 1.6rem 0 2.4rem; }
tr:target, li:target, h3:target { background: var(--faint); }

figure { margin: 2.4rem 0; }
figure h3 { margin: 0 0 .6rem; }
figure img { display: block; max-width: 100%; height: auto; background: #fff; border: 1px solid var(--line);
  padding: .5rem; border-radius: 3px; }
figcaption { margin-top: .7rem; }
.findings { margin: .4rem 0; padding-left: 1.1rem; max-width: 50rem; }
.findings li { margin: .35rem 0; }
.findings small { font: .82rem/1.45 var(--sans); display: block; }
details.numbers { font: .84rem var(--sans); margin-top: .6rem; }
details.numbers summary { cursor: pointer; color: var(--link); }
dl.glossary { display: grid; grid-template-columns: 11rem minmax(0, 1fr); gap: .3rem 1.2rem;
  max-width: 54rem; }
dl.glossary dt { font-weight: 600; } dl.glossary dd { margin: 0; }
footer { max-width: 62rem; margin: 4rem auto 0; padding: 1rem 1.25rem 3rem; border-top: 1px solid var(--line);
  font: .82rem/1.5 var(--sans); color: var(--quiet); }
[hidden] { display: none !important; }

@media (max-width: 56rem) {
  details.claim > summary { grid-template-columns: 7rem minmax(0, 1fr); }
  summary .lead-statement { grid-column: 1 / -1; }
  .body { padding-left: .4rem; }
}
@media (max-width: 44rem) {
  .wide table, .wide tbody, .wide tr, .wide td, .wide th { display: block; } .wide thead { display: none; }
  .wide caption { display: block; }
  .wide tr { padding: .5rem 0; border-top: 1px solid var(--line); }
  .sheet.wide tbody tr:not(:first-child) td { border: 0; }
  .wide tbody td, .wide tbody th { padding: .1rem 0; white-space: normal; }
  .wide tbody th { font-weight: 600; }
  .wide tbody td { min-width: 0; overflow-x: auto; overflow-y: hidden; }
  .wide td::before { content: attr(data-head); display: block; color: var(--quiet); font-size: .78rem; }
  .short > li, .pair { grid-template-columns: minmax(0, 1fr); }
  .short > li p { margin: 0 0 .3rem; }
  dl.facts-of-run { grid-template-columns: minmax(0, 1fr); gap: 0; }
  .facts-of-run dd { margin-bottom: .5rem; }
}
@media (max-width: 38rem) {
  main, header.top { padding-left: 1rem; padding-right: 1rem; }
  header.top { padding-top: 1.6rem; }
  h1 { font-size: 1.6rem; }
  nav.bar { top: -3rem; }  /* the row of tools scrolls away, that of the links stays */
  nav.bar > div { padding: 0 1rem; gap: 0; }
  .tools { order: -1; width: 100%; height: 3rem; margin: 0; }
  .tools input { flex: 1; width: auto; max-width: none; min-width: 0; }
  .links { width: 100%; overflow-x: auto; scrollbar-width: none; padding: .35rem 0 .5rem; gap: 1rem; }
  html { scroll-padding-top: 3rem; }
  .formula { padding-left: 1em; text-indent: -1em; }
  ol.chain { grid-template-columns: 1.4rem minmax(0, 1fr); gap: .2rem .3rem; }
  .chain .rule { grid-column: 2; padding-left: 0; }
  ol.steps { grid-template-columns: minmax(0, 1fr); } ol.steps .rule { grid-column: 1; }
  dl.glossary { grid-template-columns: 1fr; gap: 0; } dl.glossary dd { margin-bottom: .6rem; }
}
@media print {
  :root { --page: #fff; --raised: #fff; --ink: #000; --quiet: #444; --line: #bbb; --faint: #fff; }
  nav.bar, details.numbers, .skip, footer a { display: none; }
  body { font-size: 9.5pt; } main, header.top { max-width: none; padding: 0; }
  .formula, .scroll { overflow: visible; }
  figure img { max-height: 14cm; width: auto; }
  table { font-size: 8pt; } .sheet td, .sheet td:has(wbr) { min-width: 0; }
  figure, table, .chain > li { break-inside: avoid; }
  h2, h3, h4, summary { break-after: avoid; }
  a { color: inherit; text-decoration: none; }
}
"""

SCRIPT = """
(() => {
  const claims = [...document.querySelectorAll("details.claim")];
  const search = document.getElementById("search"), found = document.getElementById("found");
  const showTarget = () => {
    const target = document.getElementById(decodeURIComponent(location.hash.slice(1)));
    if (!target) return;
    for (let box = target.closest("details"); box; box = box.parentElement.closest("details")) {
      box.hidden = false;
      box.open = true;
    }
    target.scrollIntoView();
  };
  const filter = () => {
    const words = search.value.toLowerCase().split(/\\s+/).filter(Boolean);
    for (const claim of claims) claim.hidden = !words.every(word => claim.dataset.words.includes(word));
    for (const area of document.querySelectorAll("section.area"))
      area.hidden = !area.querySelector("details.claim:not([hidden])");
    found.textContent = words.length ? claims.filter(claim => !claim.hidden).length : "";
  };
  const openAll = open => claims.forEach(claim => { if (!claim.hidden) claim.open = open; });
  document.documentElement.classList.add("script");
  search.addEventListener("input", filter);
  document.getElementById("open").addEventListener("click", () => openAll(true));
  document.getElementById("close").addEventListener("click", () => openAll(false));
  addEventListener("hashchange", showTarget);
  addEventListener("keydown", event => {
    const typing = /^(input|textarea|select)$/i.test(event.target.tagName);
    if (event.key === "/" && !typing && !event.ctrlKey && !event.metaKey && !event.altKey) {
      event.preventDefault();
      search.focus();
    }
  });
  filter();
  showTarget();
})();
"""
