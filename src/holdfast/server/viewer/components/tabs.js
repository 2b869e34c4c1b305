// Tabs by the ARIA pattern: one tab stop, arrow keys between the tabs.

import { el, fill } from "./dom.js";

/** Create tabs from their texts by name; `onPick(name)` is called for the tab to show. */
export function createTabs(root, texts, onPick) {
  const tabs = Object.entries(texts).map(([name, text]) => el("button", {
    type: "button", role: "tab", id: `tab-${name}`, "aria-controls": `view-${name}`, "data-view": name,
  }, text));

  function show(name) {
    for (const tab of tabs) {
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
    const usable = tabs.filter(({ hidden }) => !hidden);
    const from = usable.indexOf(event.target);
    const to = event.key === "Home" ? 0 : event.key === "End" ? usable.length - 1 : from + by;
    if (from < 0 || Number.isNaN(to)) return;
    event.preventDefault();
    const tab = usable[(to + usable.length) % usable.length];
    tab.focus();
    onPick(tab.dataset.view);
  });
  fill(root, tabs);
  /** Hide a tab that has nothing to show, or show it again. */
  const setHidden = (name, isHidden) => { tabs.find(({ dataset }) => dataset.view === name).hidden = isHidden; };
  return { show, setHidden, has: (name) => Object.hasOwn(texts, name) };
}
