// What the viewer has to say: errors in words that help, in a region that is read out at once, and
// notes with something to do next.

import { add, button, byId, el, fill } from "./dom.js";
import { isAbort } from "../api/client.js";

/** An error as elements: what happened, why, what to do. */
export function errorText(error) {
  const lines = [el("p", {}, el("strong", {}, error.message))];
  if (error.hint) lines.push(el("p", { class: "hint" }, error.hint));
  for (const { where, what } of error.errors ?? []) {
    lines.push(el("p", {}, el("code", {}, [where].flat().join(".")), " ", what));
  }
  const conflicts = error.conflicts ?? [];
  if (conflicts.length) {
    lines.push(el("p", {}, "In conflict: ", conflicts.map((pair) => pair.join("/")).join(", ")));
  }
  return lines;
}

/** Show an error until it is dismissed or the next thing is done. */
export function alertOf(error) {
  if (isAbort(error)) return;
  const box = el("div", { class: "notice bad" }, el("div", {}, errorText(error)));
  box.append(button("Dismiss", () => box.remove(), { class: "quiet" }));
  fill(byId("alerts"), box);
}

export const clearAlerts = () => fill(byId("alerts"));

/** Say that something was done, with a button for what one may want next. */
export function note(text, next = null) {
  const box = el("div", { class: "notice good" }, el("p", {}, text));
  const ends = el("div", { class: "row" });
  if (next) add(ends, button(next.text, () => { box.remove(); next.act(); }));
  add(ends, button("Dismiss", () => box.remove(), { class: "quiet" }));
  box.append(ends);
  fill(byId("notes"), box);
}

export const clearNotes = () => fill(byId("notes"));

let waiting = null;

/** Have a screen reader say where one is, when the steps have come to rest. */
export function announce(text) {
  clearTimeout(waiting);
  waiting = setTimeout(() => { byId("announcer").textContent = text; }, 350);
}
