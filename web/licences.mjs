// The licences of what the page hands on: klsym, SymPy, mpmath as they ship them; Pyodide and Python by name.
import fs from "node:fs";
import path from "node:path";

const BY_NAME = `Pyodide: Mozilla Public License 2.0; its source is that of the package "pyodide" on npm.
Python: Python Software Foundation License 2.
`;

export function licences(repository, site) {
  const texts = [["klsym", fs.readFileSync(path.join(repository, "LICENSE"), "utf8")]];
  for (const folder of fs.readdirSync(site).filter((name) => /^(sympy|mpmath)-.*\.dist-info$/.test(name))) {
    const found = ["licenses/LICENSE", "LICENSE"].map((name) => path.join(site, folder, name)).find(fs.existsSync);
    if (!found) throw new Error(`${folder}: no licence`);
    texts.push([folder.replace(".dist-info", "").replace("-", " "), fs.readFileSync(found, "utf8")]);
  }
  return [BY_NAME, ...texts.map(([name, text]) => `${"=".repeat(70)}\n${name}\n\n${text.trim()}\n`)].join("\n");
}
