// The form: which fields and options each kind of question has, and the question that they make.
const OFF = ["on-policy", "off-policy"];
const DIVERGENCES = ["reverse-kl", "forward-kl", "jeffreys", "pearson-chi2", "neyman-chi2", "squared-hellinger",
  "jensen-shannon", "jensen-shannon=1/10", "alpha", "alpha=1/2", "tsallis=2", "r*log(r)"];
const FIELDS = {
  loss: { label: "Loss", lines: true, start: "k3" },
  other: { label: "Second loss", lines: true, start: "k2" },
  divergence: { label: "Divergence: a name, or f(r)", start: "jeffreys", list: DIVERGENCES },
  beta: { label: "beta", start: "0.5" },
  rewards: { label: "Rewards of the outcomes", start: "0,0.4,1" },
  reference: { label: "Reference p (uniform)", start: "" },
  behaviour: { label: "Sampling policy mu (uniform)", start: "" },
  parameters: { label: "Further parameters, such as gamma", start: "" },
};
const TARGET = { name: "target", choices: ["reverse-kl", "forward-kl"], meaning: "KL(q||p), or KL(p||q)", always: true };
const FRAMEWORK = { name: "framework", choices: ["torch", "jax", "numpy"], meaning: "of the code" };
export const KINDS = {
  explain: { label: "Explain", verb: "Explain", fields: ["loss", "parameters"] },
  compare: { label: "Compare", verb: "Compare", fields: ["loss", "other", "parameters"] },
  recommend: { label: "Recommend", verb: "Recommend", fields: [] },
  divergence: { label: "Divergence", verb: "Find losses", fields: ["divergence", "parameters"] },
  optimum: { label: "Optimum", verb: "Find policies", fields: ["loss", "beta", "rewards", "reference", "behaviour"] },
};

export class Form {
  #options; #kind = "explain"; #values = {}; #chosen = {}; #roles = {};

  // options: those of `klsym explain`, as klsym declares them.  submit: called when the user asks.
  constructor(options, submit) {
    this.#options = Object.fromEntries(options.map((option) => [option.name, option]));
    this.submit = submit;
    for (const [name, field] of Object.entries(FIELDS)) this.#values[name] = field.start;
    for (const [name, { label }] of Object.entries(KINDS)) this.#addKind(name, label);
    this.#draw();
  }

  #addKind(name, label) {
    const input = make("input", { type: "radio", name: "kind", value: name, checked: name === this.#kind });
    input.onchange = () => { this.#kind = name; this.#draw(); };
    document.getElementById("kinds").append(make("label", {}, input, make("span", {}, label)));
  }

  // The options of the kind; "" in front where the first choice says nothing.
  #optionsOf(kind) {
    const own = this.#options, some = (...names) => names.map((name) => own[name]);
    switch (kind) {
      case "explain": return Object.values(own);
      case "compare": return Object.values(own).filter((option) => option.name !== "batch");
      case "optimum": return some("sampling", "use");
      case "divergence": return [{ ...own.sampling, choices: ["", ...OFF] }];
      case "recommend": return [TARGET, { ...own.sampling, choices: OFF },
        { ...own.use, choices: [...own.use.choices, "value"] }, own.level, FRAMEWORK];
    }
  }

  #draw() {
    const fields = KINDS[this.#kind].fields.map((name) => this.#field(name));
    document.getElementById("fields").replaceChildren(...fields);
    document.querySelector(`input[name=kind][value=${this.#kind}]`).checked = true;
    document.getElementById("submit").textContent = KINDS[this.#kind].verb;
    this.#drawOptions();
    for (const area of document.querySelectorAll("textarea")) grow(area);
  }

  #field(name) {
    const { label, lines, list } = FIELDS[name];
    const box = make(lines ? "textarea" : "input", { id: name, value: this.#values[name], spellcheck: false, rows: 1 });
    box.setAttribute("autocapitalize", "off");
    box.oninput = () => {
      this.#values[name] = box.value;
      if (name === "loss") this.#roles = {};
      if (lines) grow(box);
    };
    if (lines) box.onkeydown = (event) => this.#key(event, box);
    const parts = [make("span", {}, label), box];
    if (list) {
      box.setAttribute("list", "known");
      parts.push(make("datalist", { id: "known" }, ...list.map((value) => make("option", { value }))));
    }
    return make("label", { className: `field ${name}` }, ...parts);
  }

  // Enter asks, where the text is one line; Shift+Enter starts a line, Ctrl+Enter always asks.
  #key(event, box) {
    if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
    if (event.ctrlKey || event.metaKey || !box.value.includes("\n")) {
      event.preventDefault();
      this.submit();
    }
  }

  #drawOptions() {
    const focused = document.activeElement?.id;
    const selects = this.#optionsOf(this.#kind).map((option) => this.#select(option));
    document.getElementById("options").replaceChildren(...selects);
    if (focused?.startsWith("option-")) document.getElementById(focused)?.focus();
  }

  #select(option) {
    const { name, choices, meaning } = option;
    const value = choices.includes(this.#chosen[name]) ? this.#chosen[name] : choices[0];
    const items = choices.map((one) => make("option", { value: one, selected: one === value }, one || "both"));
    const disabled = !this.#isMeant(option), title = disabled ? `${meaning}; ${this.#missing(option)}` : meaning;
    const select = make("select", { id: `option-${name}`, title, disabled }, ...items);
    select.onchange = () => { this.#chosen[name] = select.value; this.#drawOptions(); };
    return make("label", { title }, make("span", {}, name), select);
  }

  // Does an option have an effect beside the others?
  #isMeant({ needs = [] }) {
    return needs.every((need) => this.#isMet(need));
  }

  #isMet({ of, among }) {
    return among.includes(this.#chosen[of] || this.#options[of].choices[0]);
  }

  // Why an option has no effect.
  #missing({ needs = [] }) {
    const unmet = needs.filter((need) => !this.#isMet(need));
    return `has an effect with ${unmet.map(({ of, among }) => `${of} ${among.join(" or ")}`).join(" and ")} alone`;
  }

  question() {
    const { fields } = KINDS[this.#kind];
    const values = Object.fromEntries(fields.map((name) => [name, this.#values[name]]));
    if ("parameters" in values) values.parameters = values.parameters.split(/[\s,]+/).filter(Boolean);
    const options = {};
    for (const option of this.#optionsOf(this.#kind)) {
      const value = this.#chosen[option.name];
      if (!option.choices.includes(value) || !this.#isMeant(option)) continue;
      if (value !== option.choices[0]) options[option.name] = value;
    }
    if (this.#kind === "recommend") options.target ??= TARGET.choices[0];
    const roles = this.#kind === "explain" && Object.keys(this.#roles).length ? { roles: { ...this.#roles } } : {};
    return { kind: this.#kind, ...values, options, ...roles };
  }

  // Fill the form with a question of an example, a link or a suggestion.
  fill({ kind, options = {}, roles = {}, ...values }) {
    if (!(kind in KINDS)) return;
    this.#kind = kind;
    this.#chosen = { ...options };
    this.#roles = { ...roles };
    for (const name of KINDS[kind].fields) {
      const value = values[name] ?? "";
      this.#values[name] = Array.isArray(value) ? value.join(" ") : String(value);
    }
    this.#draw();
  }

  // Give a name in the pasted code a role; an empty role leaves it to klsym.
  setRole(name, role) {
    delete this.#roles[name];
    if (role) this.#roles[name] = role;
  }
}

function grow(area) {
  area.rows = Math.min(Math.max(area.value.split("\n").length, 1), 14);
}

export function make(tag, properties, ...children) {
  const element = Object.assign(document.createElement(tag), properties);
  element.append(...children);
  return element;
}
