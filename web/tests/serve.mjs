// A static server on the loopback address, with the types and the policy of a strict host.
import fs from "node:fs";
import http from "node:http";
import path from "node:path";

const TYPES = { ".html": "text/html", ".js": "text/javascript", ".mjs": "text/javascript", ".css": "text/css",
  ".json": "application/json", ".wasm": "application/wasm" };
// Of all files, so that the worker obeys it, too.
const POLICY = "default-src 'none'; script-src 'self' 'wasm-unsafe-eval'; worker-src 'self'; connect-src 'self';"
  + " style-src 'self'; img-src data:";

// Promise of {address, close}.  policy: that of the host; without one, that of the page alone counts.
export function serve(folder, policy = POLICY) {
  const root = path.resolve(folder);
  const server = http.createServer((request, response) => {
    const name = decodeURIComponent(new URL(request.url, "http://localhost").pathname);
    const file = path.join(root, name.endsWith("/") ? `${name}index.html` : name);
    if (!file.startsWith(root) || !fs.existsSync(file)) return response.writeHead(404).end();
    const type = TYPES[path.extname(file)] ?? "application/octet-stream";
    response.writeHead(200, { "Content-Type": type, ...(policy && { "Content-Security-Policy": policy }) });
    fs.createReadStream(file).pipe(response);
  });
  return new Promise((resolve) => server.listen(0, "127.0.0.1", () => {
    resolve({ address: `http://127.0.0.1:${server.address().port}/`, close: () => server.close() });
  }));
}
