(() => {
  const claims = [...document.querySelectorAll("details.claim")];
  const search = document.getElementById("search"), found = document.getElementById("found");
  const showTarget = () => {
    const target = document.getElementById(decodeURIComponent(location.hash.slice(1)));
    if (!target) return;
    for (let box = target.closest("details"); box; box = box.parentElement.closest("details")) {
      box.hidden = false;
      box.open = true;
    }
    target.scrollIntoView();
  };
  const filter = () => {
    const words = search.value.toLowerCase().split(/\s+/).filter(Boolean);
    for (const claim of claims) claim.hidden = !words.every(word => claim.dataset.words.includes(word));
    for (const area of document.querySelectorAll("section.area"))
      area.hidden = !area.querySelector("details.claim:not([hidden])");
    found.textContent = words.length ? claims.filter(claim => !claim.hidden).length : "";
  };
  const openAll = open => claims.forEach(claim => { if (!claim.hidden) claim.open = open; });
  document.documentElement.classList.add("script");
  search.addEventListener("input", filter);
  document.getElementById("open").addEventListener("click", () => openAll(true));
  document.getElementById("close").addEventListener("click", () => openAll(false));
  addEventListener("hashchange", showTarget);
  addEventListener("keydown", event => {
    const typing = /^(input|textarea|select)$/i.test(event.target.tagName);
    if (event.key === "/" && !typing && !event.ctrlKey && !event.metaKey && !event.altKey) {
      event.preventDefault();
      search.focus();
    }
  });
  filter();
  showTarget();
})();
