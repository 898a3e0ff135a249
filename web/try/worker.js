// Python and klsym in a worker of their own: the page ends the worker to stop a long derivation.
import { loadPyodide } from "./py/pyodide.mjs";

const SITE = "import sys; next(folder for folder in sys.path if folder.endswith('site-packages'))";
const step = (name) => postMessage({ step: name });

// Says how many bytes of the files in ./py/ have come: Pyodide fetches its own with this fetch, too.
const MEGABYTE = 1e6;
const plain = globalThis.fetch.bind(globalThis);
let loaded = 0;
let shown = "";

function counted(response, total) {
  const count = new TransformStream({
    transform(chunk, out) {
      loaded += chunk.byteLength;
      const text = `${(Math.min(loaded, total) / MEGABYTE).toFixed(0)} of ${(total / MEGABYTE).toFixed(0)} MB`;
      if (text !== shown) step(`Loading Python and klsym: ${(shown = text)}`);
      out.enqueue(chunk);
    },
  });
  return new Response(response.body.pipeThrough(count), response); // with its status and headers
}

async function countBytes() {
  const response = await plain("./py/bytes.json");
  if (!response.ok) return; // an older build: nothing is counted
  const { total } = await response.json();
  globalThis.fetch = async (...request) => {
    const answer = await plain(...request);
    return answer.ok && answer.body ? counted(answer, total) : answer;
  };
}

async function unpacked(url) {
  const response = await fetch(url);
  if (!response.ok) throw new Error(`${url}: ${response.status}`);
  return new Response(response.body.pipeThrough(new DecompressionStream("gzip"))).arrayBuffer();
}

async function start() {
  await countBytes().catch(() => {});
  const modules = unpacked("./py/klsym.bin"); // beside Pyodide, not after it
  modules.catch(() => {}); // reported where it is awaited
  const python = await loadPyodide({ indexURL: new URL("./py/", location.href).href, fullStdLib: false });
  step("Python has started; klsym is loading");
  python.unpackArchive(new Uint8Array(await modules), "zip", { extractDir: python.runPython(SITE) });
  return python.pyimport("answer").answer;
}

const ready = start();
ready.then(
  () => postMessage({ ready: true }),
  (error) => postMessage({ failed: String(error.message ?? error).trim().split("\n").pop() }),
);

onmessage = async ({ data: { id, question } }) => {
  const answer = await ready.catch(() => null);
  if (!answer) return postMessage({ id, reply: { error: "Python did not start" }, ms: 0 });
  const begin = performance.now();
  let reply;
  try {
    reply = JSON.parse(answer(JSON.stringify(question)));
  } catch (error) {
    // What Python itself could not catch: memory, or a stack that is too deep.
    reply = { error: `Python failed: ${String(error.message ?? error).trim().split("\n").pop()}`, broken: true };
  }
  postMessage({ id, reply, ms: performance.now() - begin });
};
