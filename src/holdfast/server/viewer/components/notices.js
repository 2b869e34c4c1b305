// Errors, notes and announcements at the top of the page.

import { isAbort } from "../api/client.js";
import { append, button, byId, el, fill } from "./dom.js";

/** Return the elements that describe an error: what happened and what to do. */
export function describeError(error) {
  const lines = [el("p", {}, el("strong", {}, error.message))];
  if (error.hint) lines.push(el("p", { class: "hint" }, error.hint));
  for (const { where, what } of error.errors ?? []) {
    lines.push(el("p", {}, el("code", {}, [where].flat().join(".")), " ", what));
  }
  const conflicts = error.conflicts ?? [];
  if (conflicts.length) {
    lines.push(el("p", {}, "Conflicts: ", conflicts.map((pair) => pair.join("/")).join(", ")));
  }
  return lines;
}

/** Show an error until it is dismissed or cleared. Cancelled requests are not errors. */
export function showError(error) {
  if (isAbort(error)) return;
  const box = el("div", { class: "notice bad" }, el("div", {}, describeError(error)));
  box.append(button("Dismiss", () => box.remove(), { class: "quiet" }));
  fill(byId("alerts"), box);
}

export const clearErrors = () => fill(byId("alerts"));

/** Show what was done; `next` is a button `{text, onClick}` for a likely next action. */
export function showNote(text, next = null) {
  const box = el("div", { class: "notice good" }, el("p", {}, text));
  const buttons = el("div", { class: "row" });
  if (next) append(buttons, button(next.text, () => { box.remove(); next.onClick(); }));
  append(buttons, button("Dismiss", () => box.remove(), { class: "quiet" }));
  box.append(buttons);
  fill(byId("notes"), box);
}

export const clearNotes = () => fill(byId("notes"));

/** Create a function that has screen readers announce a text, but only the last of several in a row. */
export function createAnnouncer(node) {
  let timer = null;
  return (text) => {
    clearTimeout(timer);
    timer = setTimeout(() => { node.textContent = text; }, 350);
  };
}
