// Builds the page /try/ into a folder: Pyodide's core, the compiled modules, the files of web/try.
//
//     node web/build_bundle.mjs MODULES.json SITE_PACKAGES OUT
import fs from "node:fs";
import path from "node:path";
import zlib from "node:zlib";
import { createHash } from "node:crypto";
import { loadPyodide } from "pyodide";
import { licences } from "./licences.mjs";
import { downloads, LIMIT } from "./sizes.mjs";

const here = import.meta.dirname;
const repository = path.dirname(here);
const core = path.join(here, "node_modules", "pyodide");
const [listed, site, out] = process.argv.slice(2);
const { modules, options, stored } = JSON.parse(fs.readFileSync(listed, "utf8"));

fs.rmSync(out, { recursive: true, force: true });
fs.mkdirSync(path.join(out, "py"), { recursive: true });

const python = await loadPyodide();
for (const [at, folder] of [["/site", site], ["/repository", repository]]) {
  python.FS.mkdirTree(at);
  python.mountNodeFS(at, path.resolve(folder));
}
python.runPython(fs.readFileSync(path.join(here, "compile_modules.py"), "utf8"));
const call = (name, ...values) => python.globals.get(name)(...values).toJs();

const bundle = call("bundle", python.toPy(modules), "/site", "/repository");
// Compressed here: many hosts compress no .zip file.  One stream over all modules is smaller than a zip of each.
fs.writeFileSync(path.join(out, "py", "klsym.bin"), zlib.gzipSync(bundle, { level: 9 }));
const library = new Uint8Array(fs.readFileSync(path.join(core, "python_stdlib.zip")));
fs.writeFileSync(path.join(out, "py", "python_stdlib.zip"), call("standard_library", python.toPy(library)));

for (const name of ["pyodide.mjs", "pyodide.asm.mjs", "pyodide.asm.wasm"]) {
  fs.copyFileSync(path.join(core, name), path.join(out, "py", name));
}
const lock = JSON.parse(fs.readFileSync(path.join(core, "pyodide-lock.json"), "utf8"));
const empty = JSON.stringify({ info: lock.info, packages: {} }); // the page loads no further package
fs.writeFileSync(path.join(out, "py", "pyodide-lock.json"), empty);
const fetched = ["klsym.bin", "python_stdlib.zip", "pyodide.asm.wasm", "pyodide-lock.json"]; // scripts are imported
const total = fetched.reduce((sum, name) => sum + fs.statSync(path.join(out, "py", name)).size, 0);
fs.writeFileSync(path.join(out, "py", "bytes.json"), JSON.stringify({ total })); // the worker counts to it
for (const name of fs.readdirSync(path.join(here, "try"))) {
  if (/\.(html|css|js)$/.test(name)) fs.copyFileSync(path.join(here, "try", name), path.join(out, name));
}
fs.writeFileSync(path.join(out, "licences.txt"), licences(repository, site));
const examples = JSON.parse(fs.readFileSync(path.join(here, "try", "examples.json"), "utf8"));
fs.writeFileSync(path.join(out, "form.json"), JSON.stringify({ options, examples }));
fs.writeFileSync(path.join(out, "stored.json"), JSON.stringify(stored));
const names = downloads(out).files.map(({ name }) => name).filter((name) => name !== "licences.txt");
const digest = createHash("sha256");
for (const name of names) digest.update(name).update(fs.readFileSync(path.join(out, name)));
const version = digest.digest("hex").slice(0, 16);
fs.writeFileSync(path.join(out, "files.json"), JSON.stringify({ version, files: names })); // what is kept offline
const worker = path.join(out, "offline.js");
fs.writeFileSync(worker, fs.readFileSync(worker, "utf8").replace("BUILD", version));

const sizes = downloads(out);
for (const { name, raw, gzip } of sizes.files) console.log(`${name.padEnd(26)} ${raw} bytes, ${gzip} gzipped`);
console.log(`${modules.length} modules; a visitor downloads ${sizes.total} bytes gzipped (limit ${LIMIT})`);
process.exit(sizes.total > LIMIT ? 1 : 0);
