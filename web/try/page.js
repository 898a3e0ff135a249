// The page: the form asks, Python answers, the answer is shown.
import { Form, KINDS, make } from "./form.js";
import { Python } from "./python.js";
import { fragment, parsed } from "./share.js";

const $ = (id) => document.getElementById(id);
const SLOW = 10_000; // ms after which the status suggests Stop
const stored = new Map(); // the answers to the examples, from when the page was built
let form, asked = 0, isReady = false, failure = "";

const python = new Python(({ step, ready, failed }) => {
  isReady ||= Boolean(ready);
  if (failed) say(failure = `Python did not start: ${failed}`);
  else if (step) say(step);
  else if ($("stop").hidden) say("Ready");
  else say("klsym is deriving the answer");
});

function say(text) {
  $("status").textContent = text;
}

// Scroll to an answer that the visitor cannot see.
function reveal() {
  const { top } = $("status").getBoundingClientRect();
  if (top < 0 || top > 0.7 * innerHeight) $("status").scrollIntoView({ block: "start" });
}

async function ask(question) {
  const number = ++asked;
  const slow = setTimeout(() => isReady && say("Still deriving; Stop ends it"), SLOW);
  $("stop").hidden = false;
  if (isReady) say("klsym is deriving the answer");
  else if (stored.has(fragment(question))) show(stored.get(fragment(question)));
  const got = await python.ask(question);
  clearTimeout(slow);
  if (number !== asked) return; // another question was asked meanwhile
  $("stop").hidden = true;
  if (!got) return;
  if (failure) return say(failure); // a stored answer stays
  show(got.reply);
  $("result").dataset.number = number; // for whoever waits for this answer
  const time = got.ms < 1000 ? `${Math.round(got.ms)} ms` : `${(got.ms / 1000).toFixed(1)} s`;
  say(got.reply.error ? `No answer (${time})` : `Answered in ${time}`);
}

function show({ html = "", text = "", command = "", proof = "", roles = "", error = "" }) {
  $("result").hidden = false;
  $("error").hidden = !error;
  $("error").textContent = error;
  $("roles").innerHTML = roles; // klsym escapes what is typed, and the page allows no script but its own
  $("answer").innerHTML = html;
  $("command").textContent = command && `$ ${command}`;
  $("text").textContent = text;
  $("proof").textContent = proof;
  $("as-text").hidden = !text;
  $("proof-as-text").hidden = !proof;
  for (const box of $("result").querySelectorAll("pre:not(:empty)")) addCopyButton(box);
}

// A button that copies a block of code or text; what klsym prints behind "$ " is copied without it.
function addCopyButton(box) {
  if (box.previousElementSibling?.matches("button.copy")) return;
  const button = make("button", { type: "button", className: "copy" }, "Copy");
  button.onclick = async () => {
    const isCopied = await navigator.clipboard.writeText(box.textContent.replace(/^\$ /, "")).then(() => true, () => false);
    button.textContent = isCopied ? "Copied" : "Not copied";
    setTimeout(() => { button.textContent = "Copy"; }, 1500);
  };
  box.before(button);
}

async function submit() {
  const question = form.question();
  const address = fragment(question);
  if (address !== location.hash) history.pushState(null, "", address);
  await ask(question);
  reveal();
}

function askAnother(question) {
  form.fill(question);
  submit();
}

// The page of a diagnostic code, under its line.
async function toggleCode(button) {
  const isOpen = button.getAttribute("aria-expanded") === "true";
  button.setAttribute("aria-expanded", String(!isOpen));
  if (isOpen) return button.parentElement.querySelector(".rule").remove();
  const place = make("div", { className: "rule" });
  button.parentElement.append(place);
  const got = await python.ask({ kind: "rule", code: button.dataset.code });
  place.innerHTML = got?.reply.html ?? "";
}

function fromAddress() {
  const question = parsed(location.hash);
  if (!question || !(question.kind in KINDS)) return false;
  form.fill(question);
  ask(question); // not what the form makes of it: klsym refuses an option that does not exist
  return true;
}

async function copyLink() {
  const link = new URL(fragment(form.question()), location.href).href;
  history.replaceState(null, "", link);
  try {
    await navigator.clipboard.writeText(link);
    say("The link to this question is copied");
  } catch {
    say("The address of this page is the link to this question");
  }
}

$("result").addEventListener("click", ({ target }) => {
  const button = target.closest("button");
  if (button?.dataset.question) askAnother(JSON.parse(button.dataset.question));
  else if (button?.dataset.code) toggleCode(button);
});
$("result").addEventListener("change", ({ target }) => {
  if (!target.dataset.role) return;
  form.setRole(target.dataset.role, target.value);
  submit();
});
$("form").addEventListener("submit", (event) => { event.preventDefault(); submit(); });
$("stop").addEventListener("click", () => {
  asked += 1;
  isReady = false;
  failure = "";
  python.stop();
  $("stop").hidden = true;
  say("Stopped; Python starts again");
  $("submit").focus();
});
$("share").addEventListener("click", copyLink);
addEventListener("hashchange", fromAddress);

say("Loading Python and klsym (9 MB, once)");
const { options, examples } = await (await fetch("form.json")).json();
form = new Form(options, submit);
for (const { label, question, group = "examples" } of examples) {
  const button = make("button", { type: "button", className: "example" }, label);
  button.onclick = () => askAnother(question);
  $(group).append(button, " ");
}
for (const { question, reply } of await fetch("stored.json").then((file) => file.json(), () => [])) {
  stored.set(fragment(question), reply);
}
if (!fromAddress()) ask(form.question());
navigator.serviceWorker?.register("offline.js").catch(() => {}); // without it the page needs the network, as others do
