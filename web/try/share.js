// A question in the fragment of the address, and back:  #explain?loss=k3&sampling=off-policy&role.ratio=rho
const FIELDS = ["loss", "other", "divergence", "beta", "rewards", "reference", "behaviour"];

export function fragment({ kind, options = {}, roles = {}, parameters = [], ...values }) {
  const pairs = new URLSearchParams();
  for (const name of FIELDS) if (values[name]) pairs.append(name, values[name]);
  for (const name of parameters) pairs.append("param", name);
  for (const [name, value] of Object.entries(options)) if (value) pairs.append(name, value);
  for (const [name, role] of Object.entries(roles)) pairs.append(`role.${name}`, role);
  return `#${kind}?${pairs}`;
}

// The question; null for a fragment that holds none.
export function parsed(text) {
  const [kind, rest] = text.replace(/^#/, "").split(/\?(.*)/s);
  if (!kind || rest === undefined) return null;
  const question = { kind, parameters: [], options: {}, roles: {} };
  for (const [name, value] of new URLSearchParams(rest)) {
    if (FIELDS.includes(name)) question[name] = value;
    else if (name === "param") question.parameters.push(value);
    else if (name.startsWith("role.")) question.roles[name.slice(5)] = value;
    else question.options[name] = value;
  }
  return question;
}
