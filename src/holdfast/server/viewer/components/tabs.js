// Tabs by the ARIA pattern: one stop of the Tab key, arrows between them, each shows its panel.

import { el, fill } from "./dom.js";

export function tabs(root, names, onPick) {
  const made = Object.entries(names).map(([name, text]) => el("button", {
    type: "button", role: "tab", id: `tab-${name}`, "aria-controls": `view-${name}`, "data-view": name,
  }, text));

  function show(name) {
    for (const tab of made) {
      const isShown = tab.dataset.view === name;
      tab.setAttribute("aria-selected", String(isShown));
      tab.tabIndex = isShown ? 0 : -1;
      document.getElementById(`view-${tab.dataset.view}`).hidden = !isShown;
    }
  }

  root.addEventListener("click", (event) => {
    const tab = event.target.closest("[role=tab]");
    if (tab) onPick(tab.dataset.view);
  });
  root.addEventListener("keydown", (event) => {
    const by = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    const from = made.indexOf(event.target);
    const to = event.key === "Home" ? 0 : event.key === "End" ? made.length - 1 : from + by;
    if (from < 0 || Number.isNaN(to)) return;
    event.preventDefault();
    const tab = made[(to + made.length) % made.length];
    tab.focus();
    onPick(tab.dataset.view);
  });
  fill(root, made);
  return { show, has: (name) => Object.hasOwn(names, name) };
}
