// A service worker: after the first visit the page works without a network.  files.json names all files of a build.
const started = fetch("files.json", { cache: "no-cache" }).then((file) => file.json());

self.addEventListener("install", (event) => {
  event.waitUntil(started.then(async ({ version, files }) => {
    await (await caches.open(version)).addAll(["./", ...files]);
    await self.skipWaiting();
  }));
});

self.addEventListener("activate", (event) => {
  event.waitUntil(started.then(async ({ version }) => {
    for (const name of await caches.keys()) if (name !== version) await caches.delete(name);
    await self.clients.claim();
  }));
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
