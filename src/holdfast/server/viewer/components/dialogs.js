// Dialogs that ask before they do. Each first lets the server say what would happen, shows that, and
// only then offers the button that does it. Where the session has gone on in between, it shows anew.

import { button, el, fill, setBusy } from "./dom.js";
import { isAbort } from "../api/client.js";
import { errorText } from "./notices.js";

/** An open dialog with a title; it is gone from the page when it is closed. */
export function openDialog(title, ...content) {
  const heading = el("h2", { id: `dialog-title` }, title);
  const dialog = el("dialog", { "aria-labelledby": heading.id }, heading, content);
  dialog.addEventListener("close", () => dialog.remove());
  document.body.append(dialog);
  dialog.showModal();
  return dialog;
}

/**
 * Ask, with a look ahead. `preview()` gives elements that say what would happen, or null where there
 * is not enough to go by yet; `act()` does it. `fields` are controls that change what it would do.
 */
export function ask({ title, explain, fields = [], preview, act, confirm, danger = false }) {
  const ahead = el("div", { class: "ahead", "aria-live": "polite" });
  const wrong = el("div", { role: "alert" });
  const yes = el("button", { class: danger ? "main danger" : "main", disabled: true }, confirm);
  const form = el("form", { class: "asking" },
    explain && el("p", {}, explain), fields, wrong, ahead,
    el("div", { class: "row dialog-end" }, button("Cancel", () => dialog.close()), yes));
  const dialog = openDialog(title, form);
  let looking = 0;

  async function look() {
    const mine = ++looking;
    yes.disabled = true;
    setBusy(dialog, true);
    fill(ahead, el("p", { class: "muted" }, "Looking at what would happen…"));
    try {
      const found = await preview();
      if (mine !== looking) return;
      fill(ahead, found);
      yes.disabled = !found;
    } catch (error) {
      if (mine !== looking) return;
      fill(ahead);
      refuse(error);
    }
    setBusy(dialog, false);
  }

  function refuse(error) {
    if (!isAbort(error)) fill(wrong, el("div", { class: "notice bad" }, errorText(error)));
  }

  async function go() {
    yes.disabled = true;
    setBusy(dialog, true);
    fill(wrong);
    try {
      await act();
      dialog.close();
    } catch (error) {
      if (error.status === 412) {
        fill(wrong, el("div", { class: "notice bad" },
          el("p", {}, el("strong", {}, "The session has gone on in the meantime.")),
          el("p", {}, "Nothing was done. This is what would happen now:")));
        await look();
      } else {
        refuse(error);
        yes.disabled = false;
        setBusy(dialog, false);
      }
    }
  }

  let waiting = null;
  form.addEventListener("input", () => {
    clearTimeout(waiting);
    yes.disabled = true;
    setBusy(dialog, true);
    looking += 1;
    waiting = setTimeout(() => { fill(wrong); look(); }, 300);
  });
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    if (!yes.disabled) go();
  });
  look();
  return dialog;
}
