// Dialogs. A dialog that changes something first shows a preview by the server, and only then enables its button.

import { isAbort } from "../api/client.js";
import { button, el, fill, setBusy } from "./dom.js";
import { describeError } from "./notices.js";

const INPUT_DELAY = 300;

/** Open a dialog; closing it removes it from the page. */
export function openDialog(title, ...content) {
  const heading = el("h2", { id: "dialog-title" }, title);
  const dialog = el("dialog", { "aria-labelledby": heading.id }, heading, content);
  dialog.addEventListener("close", () => dialog.remove());
  document.body.append(dialog);
  dialog.showModal();
  return dialog;
}

/**
 * Open a dialog that asks for confirmation. `preview()` returns elements that show what would change, or null while
 * input is missing; `execute()` changes it. The preview is repeated when one of the `fields` changes, and when the
 * session was changed after it.
 */
export function confirmDialog({ title, explanation, fields = [], preview, execute, confirm, isDangerous = false }) {
  const previewBox = el("div", { "aria-live": "polite" });
  const errorBox = el("div", { role: "alert" });
  const confirmButton = el("button", { class: isDangerous ? "main danger" : "main", disabled: true }, confirm);
  const form = el("form", { class: "dialog-form" },
    explanation && el("p", {}, explanation), fields, errorBox, previewBox,
    el("div", { class: "row dialog-end" }, button("Cancel", () => dialog.close()), confirmButton));
  const dialog = openDialog(title, form);
  let previews = 0;

  async function updatePreview() {
    const number = ++previews;
    confirmButton.disabled = true;
    setBusy(dialog, true);
    fill(previewBox, el("p", { class: "muted" }, "Loading preview…"));
    try {
      const content = await preview();
      if (number !== previews) return;
      fill(previewBox, content);
      confirmButton.disabled = !content;
    } catch (error) {
      if (number !== previews) return;
      fill(previewBox);
      showDialogError(error);
    }
    setBusy(dialog, false);
  }

  function showDialogError(error) {
    if (!isAbort(error)) fill(errorBox, el("div", { class: "notice bad" }, describeError(error)));
  }

  async function submit() {
    confirmButton.disabled = true;
    setBusy(dialog, true);
    fill(errorBox);
    try {
      await execute();
      dialog.close();
    } catch (error) {
      if (error.status === 412) {
        fill(errorBox, el("div", { class: "notice bad" },
          el("p", {}, el("strong", {}, "The session has changed.")),
          el("p", {}, "Nothing was written. Check the new preview and confirm again.")));
        await updatePreview();
      } else {
        showDialogError(error);
        confirmButton.disabled = false;
        setBusy(dialog, false);
      }
    }
  }

  let timer = null;
  form.addEventListener("input", () => {
    clearTimeout(timer);
    confirmButton.disabled = true;
    setBusy(dialog, true);
    previews += 1; // one that is being loaded is outdated
    timer = setTimeout(() => { fill(errorBox); updatePreview(); }, INPUT_DELAY);
  });
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    if (!confirmButton.disabled) submit();
  });
  updatePreview();
}
