// The page in headless Chromium:  node --test web/tests   after `make try`.
import assert from "node:assert/strict";
import fs from "node:fs";
import path from "node:path";
import { after, before, test } from "node:test";
import { fragment } from "../try/share.js";
import { downloads, LIMIT } from "../sizes.mjs";
import { answered, ask, launch, open, WORKER } from "./browser.mjs";
import { serve } from "./serve.mjs";

const build = process.env.KLSYM_TRY_BUILD ?? path.join(import.meta.dirname, "..", "..", "build");
const FOLDER = path.join(build, "site", "try");
const SHOTS = path.join(build, "try", "shots");
const NATIVE = JSON.parse(fs.readFileSync(path.join(build, "try", "native.json"), "utf8"));
const CLAMPS = [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11];
const LONG = CLAMPS.map((n) => `min(rho**${n}, ${n})*clip(k${(n % 3) + 1}, -${n}, ${n})`).join(" + ");
const PASTED = "ratio = torch.exp(logp - old_logp).detach()\nd = ref_logp - logp\nloss = ratio*(torch.exp(d) - 1 - d)";

let host, browser, first;

before(async () => {
  fs.mkdirSync(SHOTS, { recursive: true });
  host = await serve(FOLDER);
  browser = await launch();
});
after(async () => {
  await browser?.close();
  host?.close();
});

test("a visitor downloads at most 11 MB gzipped", () => {
  const { total } = downloads(FOLDER);
  console.log(`download: ${total} bytes gzipped`);
  assert.ok(total <= LIMIT);
});

test("the first verdict is that on k3", async () => {
  const start = browser.cpu();
  first = await open(browser.context, host.address);
  await first.page.waitForSelector("#result[data-number] .badge.proved");
  const spent = browser.cpu() - start;
  console.log(`first verdict: ${spent.toFixed(2)} s of CPU`);
  assert.match(await first.page.textContent(".does"), /minimises KL\(p\|\|q\), the forward KL/);
  assert.ok(await first.page.locator("#answer math").count() > 3);
});

test("the text equals that of the command line", async () => {
  const good = NATIVE.filter((row) => row.code === 0);
  assert.ok(good.length >= 30);
  for (const { question, text } of good) {
    const shown = await ask(first.page, question);
    assert.equal(shown.text, text, JSON.stringify(question));
    assert.equal(shown.error, "");
  }
});

test("bad input gives the one line of the command line", async () => {
  for (const { question, text } of NATIVE.filter((row) => row.code !== 0)) {
    const shown = await ask(first.page, question);
    assert.equal(shown.error, text);
    assert.ok(!shown.error.includes("\n"));
    assert.equal(shown.text, "");
  }
  assert.equal(await first.page.locator("#result img").count(), 0);
});

test("a simple question after the first downloads nothing", async () => {
  const losses = ["k1", "k2", "k3", "2*k1", "2*k2", "3*k3", "k1 + k2", "k2 + k3", "k1 - k2", "4*k3"];
  const start = [browser.cpu(WORKER), browser.cpu()];
  const requests = first.requests.length;
  for (const loss of losses) await ask(first.page, { kind: "explain", loss, options: {} });
  const [python, all] = [browser.cpu(WORKER) - start[0], browser.cpu() - start[1]].map((s) => s / losses.length);
  console.log(`later: ${(1000 * python).toFixed(0)} ms of CPU each, ${(1000 * all).toFixed(0)} ms with the drawing`);
  assert.equal(first.requests.length, requests);
});

test("the roles of pasted names are shown and can be changed", async () => {
  const { page } = first;
  await ask(page, { kind: "explain", loss: PASTED, options: { sampling: "off-policy" } });
  assert.equal(await page.locator('[data-role="old_logp"]').inputValue(), "log_mu");
  await answered(page, () => page.selectOption('[data-role="ref_logp"]', "log_mu"));
  assert.equal(await page.locator('[data-role="ref_logp"]').inputValue(), "log_mu");
  assert.match(page.url(), /role\.ref_logp=log_mu/);
  await ask(page, { kind: "explain", loss: "(ratio - 1)*k3", options: { sampling: "off-policy" } });
  assert.match(await page.textContent("#error"), /ambiguous name 'ratio'/);
  await answered(page, () => page.selectOption('[data-role="ratio"]', "rho"));
  assert.match(await page.textContent(".does"), /KL/);
});

test("a block of text can be copied", async () => {
  const { page } = first;
  await browser.context.grantPermissions(["clipboard-read", "clipboard-write"]);
  await ask(page, { kind: "explain", loss: "k2", options: {} });
  await page.evaluate(() => { document.getElementById("as-text").open = true; });
  await page.click("#as-text button.copy >> nth=0");
  assert.equal(await page.evaluate(() => navigator.clipboard.readText()), "klsym explain k2");
  await page.evaluate(() => { document.getElementById("as-text").open = false; });
});

test("the stored answers are those that Python gives", async () => {
  const stored = JSON.parse(fs.readFileSync(path.join(FOLDER, "stored.json"), "utf8"));
  assert.ok(stored.length >= 20);
  for (const { question, reply } of stored) {
    assert.ok(reply.text && !reply.error, JSON.stringify(question));
    assert.equal((await ask(first.page, question)).text, reply.text);
  }
});

test("a stored answer is shown before Python has loaded, and the page works offline", async () => {
  const late = await browser.context.newPage();
  await late.route("**/klsym.bin", () => {}); // never answered
  await late.goto(`${host.address}#explain?loss=rho*k3&sampling=off-policy`);
  await late.waitForSelector("#answer .badge.proved");
  assert.match(await late.textContent(".does"), /minimises KL\(q\|\|p\), the reverse KL/);
  await late.close();
  await first.page.evaluate(() => navigator.serviceWorker.ready);
  await browser.context.setOffline(true);
  const { page } = await open(browser.context, host.address, "#explain?loss=2*k2");
  await page.waitForSelector("#result[data-number] .badge.proved");
  assert.match(await page.textContent(".does"), /minimises 2\*?\s?KL\(q\|\|p\)/);
  await browser.context.setOffline(false);
  await page.close();
});

test("opened as a file the page says so", async () => {
  const page = await browser.context.newPage();
  await page.goto(`file://${path.join(FOLDER, "index.html")}`);
  await page.waitForTimeout(2500);
  assert.match(await page.innerText("#status"), /Opened as a file it cannot/);
  await page.close();
});

test("diagnostic codes open their page, and suggestions ask", async () => {
  const { page } = first;
  await ask(page, { kind: "explain", loss: "k3", options: {} });
  await page.click('[data-code="KL002"]');
  await page.waitForSelector(".diagnostics .rule table");
  await answered(page, () => page.click("table.facts > * > tr > td > button.ask >> nth=-1"));
  assert.equal(await page.inputValue("#loss"), "k2");
  await answered(page, () => page.goBack());
  assert.equal(await page.inputValue("#loss"), "k3");
});

test("options without effect are greyed out", async () => {
  const { page } = first;
  assert.ok(await page.isDisabled("#option-weights"));
  await page.selectOption("#option-level", "token");
  assert.ok(await page.isEnabled("#option-weights"));
  assert.ok(await page.isDisabled("#option-batch"));
  assert.match(await page.getAttribute("#option-batch", "title"), /has an effect with level sample or sequence alone/);
  assert.doesNotMatch(await page.getAttribute("#option-weights", "title"), /alone$/);
});

test("a link holds the whole question", async () => {
  const question = {
    kind: "explain", loss: "ratio*A + gamma*k1", parameters: ["gamma"], roles: { ratio: "rho" },
    options: { sampling: "off-policy", level: "token", weights: "prefix" },
  };
  const other = await open(browser.context, host.address, fragment(question));
  await other.page.waitForSelector("#result[data-number]");
  assert.equal(await other.page.inputValue("#loss"), question.loss);
  assert.equal(await other.page.inputValue("#parameters"), "gamma");
  assert.equal(await other.page.inputValue("#option-weights"), "prefix");
  assert.match(await other.page.textContent("#command"), /--weights prefix --param gamma$/);
  await other.page.close();
});

test("a link with a wrong option gives one line", async () => {
  for (const [options, said] of [
    [{ sampling: "sometimes" }, "sampling='sometimes': one of on-policy, off-policy, truncated expected"],
    [{ wrong: "x" }, "explain: unknown option 'wrong' (known: sampling, use, level, batch, credit, weights, aggregate)"],
    [{ credit: "total" }, "credit: needs level token"],
  ]) {
    assert.equal((await ask(first.page, { kind: "explain", loss: "k3", options })).error, said);
  }
  const { error } = await ask(first.page, { kind: "recommend", options: {} });
  assert.match(error, /^target=''|target/);
  assert.ok(!error.includes("please report"));
});

test("the keyboard alone asks", async () => {
  const { page } = first;
  await ask(page, { kind: "explain", loss: "k3", options: {} });
  await page.focus("#loss");
  await page.keyboard.press("Control+A");
  await page.keyboard.type("sg(rho)*k2");
  await answered(page, () => page.keyboard.press("Enter"));
  assert.match(await page.textContent("#text"), /^sg\(rho\)\*k2/);
  await page.focus("input[name=kind]:checked");
  await page.keyboard.press("ArrowRight");
  assert.equal(await page.textContent("#submit"), "Compare");
  await page.keyboard.press("Tab");
  assert.equal(await page.evaluate(() => document.activeElement.id), "loss");
  await page.focus("#as-text summary");
  await page.keyboard.press("Enter");
  assert.ok(await page.isVisible("#text"));
  const bare = await page.evaluate(() => [...document.querySelectorAll("input, textarea, select")]
    .filter((box) => !box.labels.length || !box.labels[0].textContent.trim()).map((box) => box.id));
  assert.deepEqual(bare, []);
});

test("Stop ends a long derivation, and the next question is answered", async () => {
  const { page } = first;
  const hash = fragment({ kind: "explain", loss: LONG, options: { sampling: "off-policy" } });
  await page.evaluate((next) => { location.hash = next; }, hash);
  await page.waitForSelector("#stop:not([hidden])");
  await page.waitForTimeout(500);
  await page.click("#stop");
  assert.match(await page.textContent("#status"), /^Stopped/);
  const shown = await ask(page, { kind: "explain", loss: "k2", options: {} });
  assert.match(shown.text, /minimises KL\(q\|\|p\), the reverse KL/);
});

test("nothing overflows at 400 px, in light and in dark, and words are readable", async () => {
  const { page } = first;
  const questions = NATIVE.filter((row) => row.code === 0).map((row) => row.question).filter((_, n) => n % 3 === 2);
  await page.setViewportSize({ width: 400, height: 900 });
  const examples = JSON.parse(fs.readFileSync(path.join(FOLDER, "form.json"), "utf8")).examples;
  for (const question of [...examples.map((one) => one.question), ...questions]) {
    await ask(page, question);
    await page.evaluate(() => document.querySelectorAll("details").forEach((part) => { part.open = true; }));
    const width = await page.evaluate(() => document.documentElement.scrollWidth);
    assert.ok(width <= 400, `${width} px wide: ${JSON.stringify(question)}`);
  }
  for (const colorScheme of ["light", "dark"]) {
    await page.emulateMedia({ colorScheme });
    const faint = await page.evaluate(faintWords);
    assert.deepEqual(faint, [], colorScheme);
  }
});

test("screenshots", async () => {
  const { page } = first;
  const asked = {
    k3: { kind: "explain", loss: "k3", options: {} },
    ppo: { kind: "explain", loss: "-min(rho*A, clip(rho, 1-eps, 1+eps)*A)", options: { sampling: "off-policy" } },
    pasted: { kind: "explain", loss: PASTED, options: { sampling: "off-policy" } },
    refused: { kind: "explain", loss: "ratio*A", options: {} },
    recommend: { kind: "recommend", options: { target: "reverse-kl", sampling: "off-policy" } },
    divergence: { kind: "divergence", divergence: "jeffreys", options: {} },
    optimum: {
      kind: "optimum", loss: "k3", beta: "0.5", rewards: "0,0.4,1", reference: "0.5,0.3,0.2", options: { use: "reward" },
    },
    token: { kind: "explain", loss: "k3", options: { sampling: "off-policy", level: "token" } },
    compare: { kind: "compare", loss: "rho*k1", other: "rho*k3", options: { sampling: "off-policy" } },
  };
  for (const [name, question] of Object.entries(asked)) {
    await ask(page, question);
    await page.evaluate((isOpen) => document.querySelectorAll("#result details").forEach((part) => {
      part.open = isOpen && part.closest("#answer") !== null;
    }), name === "k3");
    for (const colorScheme of ["light", "dark"]) {
      await page.emulateMedia({ colorScheme });
      for (const width of [1280, 400]) {
        await page.setViewportSize({ width, height: 900 });
        await page.screenshot({ path: path.join(SHOTS, `${name}-${width}-${colorScheme}.png`), fullPage: true });
      }
    }
  }
});

// What a page could do if a question became part of it, and the directive that refuses it.
const ATTEMPTS = {
  "an inline script": ["script-src", () => document.head.append(Object.assign(document.createElement("script"), { text: "1" }))],
  "a script of another host": ["script-src", () => add("script", { src: "https://other.test/a.js" })],
  "a handler in an attribute": ["script-src", () => { document.body.setAttribute("onclick", "1"); document.body.click(); }],
  "eval": ["script-src", () => { setTimeout("window.spoiled = true", 0); }],
  "a request to another host": ["connect-src", () => { fetch("https://other.test/").catch(() => {}); }],
  "a worker of a blob": ["worker-src", () => { try { new Worker(URL.createObjectURL(new Blob(["1"]))); } catch {} }],
  "a picture of another host": ["img-src", () => add("img", { src: "https://other.test/a.png" })],
  "a style of another host": ["style-src", () => add("link", { rel: "stylesheet", href: "https://other.test/a.css" })],
  "an inline style": ["style-src", () => document.body.setAttribute("style", "color: red")],
  "a frame": ["default-src", () => add("iframe", { src: location.href })],
  "a plug-in": ["default-src", () => add("object", { data: location.href })],
  "another base": ["base-uri", () => add("base", { href: "https://other.test/" })],
  "a form": ["form-action", () => { add("form", { action: "?sent" }).submit(); }],
};

test("the policy of the page alone refuses what it does not need, and lets it answer", async (context) => {
  const bare = await serve(FOLDER, "");
  context.after(() => bare.close());
  const response = await fetch(bare.address);
  assert.equal(response.headers.get("content-security-policy"), null);
  const { page, complaints } = await open(browser.context, bare.address, "#explain?loss=k3");
  await page.waitForSelector("#result[data-number] .badge.proved");
  assert.deepEqual(complaints, []);
  await page.evaluate(() => {
    window.refused = [];
    document.addEventListener("securitypolicyviolation", (event) => {
      window.refused.push([event.effectiveDirective, event.disposition]);
    });
    window.add = (name, properties) => document.body.appendChild(Object.assign(document.createElement(name), properties));
  });
  for (const [name, [directive, attempt]] of Object.entries(ATTEMPTS)) {
    await page.evaluate(() => { window.refused.length = 0; });
    await page.evaluate(attempt);
    await page.waitForFunction(() => window.refused.length > 0, null, { timeout: 5000 }).catch(() => {});
    const [first] = await page.evaluate(() => window.refused);
    assert.ok(first, `${name} is not refused`);
    const family = directive === "default-src" ? ["frame-src", "object-src", "default-src"] : [directive];
    assert.ok(family.some((one) => first[0].startsWith(one)) && first[1] === "enforce", `${name}: ${first}`);
  }
  await page.close();
});

test("no request went outside, and the browser complained of nothing", () => {
  const outside = first.requests.filter((url) => !url.startsWith(host.address) && !url.startsWith("data:"));
  assert.deepEqual(outside, []);
  assert.deepEqual(first.complaints, []);
});

// Visible words with a contrast below 4.5 to their background.  Runs in the page.
function faintWords() {
  const parse = (color) => (color.match(/[\d.]+/g) ?? []).map(Number);
  const light = (color) => parse(color).slice(0, 3).map((value) => value / 255)
    .map((v) => (v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4))
    .reduce((sum, v, n) => sum + v * [0.2126, 0.7152, 0.0722][n], 0);
  const behind = (element) => {
    for (let e = element; e; e = e.parentElement) {
      const color = getComputedStyle(e).backgroundColor;
      if (parse(color)[3] !== 0) return color;
    }
    return "rgb(255, 255, 255)";
  };
  const faint = new Set();
  for (const element of document.querySelectorAll("body *")) {
    const own = [...element.childNodes].some((node) => node.nodeType === 3 && node.textContent.trim());
    if (!own || !element.checkVisibility() || element.matches(":disabled, option, noscript")) continue;
    const [a, b] = [light(getComputedStyle(element).color), light(behind(element))].sort((x, y) => y - x);
    if ((a + 0.05) / (b + 0.05) < 4.5) faint.add(`${element.tagName}.${element.className}`);
  }
  return [...faint];
}
