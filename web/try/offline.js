// A service worker: after the first visit the page works without a network.  The build writes its digest here, so
// that a new build is a new worker, which keeps the files anew; files.json names them.
const PREFIX = "klsym-", VERSION = `${PREFIX}BUILD`;
const listed = async () => (await (await fetch("files.json", { cache: "no-cache" })).json()).files;

self.addEventListener("install", (event) => {
  event.waitUntil((async () => {
    await (await caches.open(VERSION)).addAll(["./", ...(await listed())]);
    await self.skipWaiting();
  })());
});

self.addEventListener("activate", (event) => {
  event.waitUntil((async () => {
    const old = (await caches.keys()).filter((name) => name.startsWith(PREFIX) && name !== VERSION);
    for (const name of old) await caches.delete(name);
    await self.clients.claim();
  })());
});

// The network first: a new build is used at once.  Without one, what was kept.
self.addEventListener("fetch", (event) => {
  if (event.request.method !== "GET" || new URL(event.request.url).origin !== location.origin) return;
  event.respondWith(fetch(event.request).catch(async (error) => {
    const kept = await caches.match(event.request, { ignoreSearch: true });
    if (kept) return kept;
    throw error;
  }));
});
