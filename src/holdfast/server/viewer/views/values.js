// The values at a step as one tree: what the agent keeps, the session's own, and every other
// namespace. What changed at the step is marked and unfolded.

import { byId, el, fill } from "../components/dom.js";
import { plural } from "../components/format.js";
import { segment } from "../api/json-values.js";
import { tree } from "../components/tree.js";

/** The namespaces of a state, by the names that changes use. */
function spaces({ state }) {
  const found = [["state", "values", state.values ?? {}]];
  for (const [name, values] of Object.entries(state.namespaces ?? {})) found.push([name, name, values]);
  const own = { status: state.status, ...state.session };
  found.push(["session", "session", own]);
  return found;
}

export function valuesView() {
  const root = byId("values");
  const opened = new Set();

  return {
    /** Begin with the agent's own values unfolded and nothing else. */
    forget() {
      opened.clear();
      opened.add("/state");
    },
    show({ state, marks, entries }) {
      const roots = spaces(state).map(([space, key, value]) => ({ key, value, path: `/${segment(space)}` }));
      for (const { path } of roots) if (marks.hasInside(path)) opened.add(path);
      for (const { namespace, key, fields } of entries.slice(0, 20)) {
        if (namespace === "messages") continue;
        for (const { path } of (fields ?? []).slice(0, 20)) openDownTo(`/${segment(namespace)}/${segment(key)}`, path);
      }
      const scrolled = root.scrollTop;
      const focused = root.contains(document.activeElement) && document.activeElement.dataset.path;
      fill(root, tree("values at this step", roots, { opened, marks }));
      root.scrollTop = scrolled;
      if (focused) focusAgain(focused);
      const touched = entries.filter(({ namespace }) => namespace !== "messages").length;
      byId("values-count").textContent = touched ? `${plural(touched, "change")} at this step` : "no change at this step";
      if (!roots.length) fill(root, el("p", { class: "muted" }, "none"));
    },
  };

  /** A step draws the tree anew; who was in it stays where he was. */
  function focusAgain(path) {
    const items = [...root.querySelectorAll("[role=treeitem]")];
    const item = items.find(({ dataset }) => dataset.path === path) ?? items[0];
    items[0]?.setAttribute("tabindex", "-1");
    item?.setAttribute("tabindex", "0");
    item?.focus({ preventScroll: true });
  }

  function openDownTo(entry, pointer) {
    let path = entry;
    for (const part of pointer.split("/").slice(1)) {
      opened.add(path);
      path += `/${part}`;
    }
  }
}
