(() => {
  const claims = [...document.querySelectorAll("details.claim")];
  const search = document.getElementById("search"), found = document.getElementById("found");
  const showTarget = () => {
    const target = document.getElementById(decodeURIComponent(location.hash.slice(1)));
    if (!target) return;
    const whole = target.querySelector(":scope > details.whole");
    if (whole) whole.open = true;
    for (let box = target.closest("details"); box; box = box.parentElement.closest("details")) {
      box.hidden = false;
      box.open = true;
    }
    target.scrollIntoView();
  };
  const filter = () => {
    const words = search.value.toLowerCase().split(/\s+/).filter(Boolean);
    for (const claim of claims) claim.hidden = !words.every(word => claim.dataset.words.includes(word));
    for (const area of document.querySelectorAll("details.area")) {
      area.hidden = !area.querySelector("details.claim:not([hidden])");
      if (words.length) area.open = true;
    }
    found.textContent = words.length ? claims.filter(claim => !claim.hidden).length : "";
  };
  const openAll = open => {
    for (const box of [...document.querySelectorAll("details.fold"), ...claims]) if (!box.hidden) box.open = open;
  };
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
