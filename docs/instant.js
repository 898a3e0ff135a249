/* Results below the search box while one types: Sphinx's own index and scores, loaded with the first letter. */
(() => {
  const MOST = 8, root = document.documentElement.dataset.content_root || "";
  const load = name => new Promise((done, failed) => {
    const script = document.createElement("script");
    script.onload = done; script.onerror = failed; script.src = root + name;
    document.head.append(script);
  });
  let loading;
  const prepare = () => loading ??= (window.Search?.hasIndex?.() ? Promise.resolve()
    : load("_static/language_data.js").then(() => load("_static/searchtools.js")).then(() => load("searchindex.js")));
  const look = words => Search._performSearch(...Search._parseQuery(words)).reverse();
  const show = (list, results) => {
    list.replaceChildren(...results.slice(0, MOST).map(([page, title, anchor]) => {
      const item = document.createElement("li"), link = document.createElement("a");
      link.href = `${root}${page}.html${anchor}`; link.textContent = title.replace(/<[^>]*>/g, "");
      item.append(link);
      return item;
    }));
    if (!results.length) list.textContent = "Nothing found";
  };
  for (const box of document.querySelectorAll("input.sidebar-search")) {
    const list = document.createElement("ol");
    list.className = "instant"; list.hidden = true; list.setAttribute("role", "status");
    box.form.after(list); box.autocomplete = "off";
    let typed = "";
    box.addEventListener("input", async () => {
      typed = box.value;
      const words = typed.trim();
      list.hidden = words.length < 2;
      if (list.hidden) return;
      try { await prepare(); } catch { list.hidden = true; return; }  /* Enter still leads to the page of results */
      box.value = typed;  /* searchtools.js empties the box when it is loaded */
      if (words === typed.trim()) show(list, look(words));
    });
    box.addEventListener("keydown", event => { if (event.key === "Escape") { box.value = ""; list.hidden = true; } });
  }
  addEventListener("keydown", event => {
    const typing = /^(input|textarea|select)$/i.test(event.target.tagName) || event.target.isContentEditable;
    const box = document.querySelector("input.sidebar-search");
    if (event.key !== "/" || typing || event.ctrlKey || event.metaKey || event.altKey || !box) return;
    event.preventDefault();
    const drawer = document.getElementById("__navigation");
    if (drawer && !box.getClientRects().length) drawer.checked = true;
    box.focus();
  });
})();
