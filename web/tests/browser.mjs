// Headless Chromium with a profile of its own, its CPU time, and the page that is asked.
import fs from "node:fs";
import os from "node:os";
import path from "node:path";
import { chromium } from "playwright-core";
import { fragment } from "../try/share.js";

const FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync",
  "--disable-background-networking", "--disable-component-update", "--disable-dev-shm-usage"];
export const PATIENCE = 120_000; // ms: the machine may be busy

export async function launch() {
  const profile = fs.mkdtempSync(path.join(os.tmpdir(), "klsym-try-"));
  const context = await chromium.launchPersistentContext(profile, {
    executablePath: process.env.CHROMIUM ?? "/usr/bin/chromium", headless: true, args: FLAGS,
    viewport: { width: 1280, height: 900 },
  });
  context.setDefaultTimeout(PATIENCE);
  const close = async () => {
    await context.close();
    fs.rmSync(profile, { recursive: true, force: true });
  };
  return { context, close, cpu: (thread) => cpuSeconds(profile, thread) };
}

// The worker in which Python runs; Linux cuts the names of threads.
export const WORKER = "DedicatedWorker";

// CPU seconds of the browser with this profile and of all processes that it started, or of their threads of one name.
function cpuSeconds(profile, thread) {
  const processes = new Map();
  for (const id of fs.readdirSync("/proc").filter((name) => /^\d+$/.test(name))) {
    try {
      const command = fs.readFileSync(`/proc/${id}/cmdline`, "utf8");
      const whole = stat(`/proc/${id}/stat`);
      const ticks = thread ? threadTicks(id, thread) : whole.ticks;
      processes.set(id, { parent: whole.parent, ticks, isRoot: command.includes(profile) });
    } catch {} // the process has ended
  }
  const belongs = (id) => {
    const known = processes.get(id);
    return Boolean(known) && (known.isRoot || belongs(known.parent));
  };
  return [...processes.keys()].filter(belongs).reduce((sum, id) => sum + processes.get(id).ticks, 0) / 100;
}

function stat(file) {
  const [, name, rest] = fs.readFileSync(file, "utf8").match(/^\d+ \((.*)\) (.*)$/s);
  const fields = rest.split(" ");
  return { name, parent: fields[1], ticks: Number(fields[11]) + Number(fields[12]) };
}

function threadTicks(id, name) {
  return fs.readdirSync(`/proc/${id}/task`).map((task) => stat(`/proc/${id}/task/${task}/stat`))
    .filter((one) => one.name.startsWith(name)).reduce((sum, one) => sum + one.ticks, 0);
}

// A page of klsym, the requests that it sends and the complaints of the browser.
export async function open(context, address, hash = "") {
  const page = await context.newPage();
  const requests = [], complaints = [];
  page.on("request", (request) => requests.push(request.url()));
  page.on("console", (message) => ["error", "warning"].includes(message.type()) && complaints.push(message.text()));
  page.on("pageerror", (error) => complaints.push(String(error)));
  await page.goto(address + hash);
  return { page, requests, complaints };
}

// The number of answers so far is in the page: wait for the next one.
export async function answered(page, act) {
  const before = await page.getAttribute("#result", "data-number") ?? "0";
  await act();
  await page.waitForSelector(`#result[data-number]:not([data-number="${before}"])`, { state: "attached" });
}

export async function ask(page, question) {
  const hash = fragment(question);
  await answered(page, async () => {
    // The same address asks nothing again.
    await page.evaluate((next) => { location.hash = location.hash === next ? "" : next; }, hash);
  });
  return page.evaluate(() => ({
    text: document.getElementById("text").textContent,
    error: document.getElementById("error").textContent,
    command: document.getElementById("command").textContent,
  }));
}
