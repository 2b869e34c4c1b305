// What the user may do. If the server requires a token, the viewer asks for one and keeps it for this tab only. With
// a token for reading, buttons that write are hidden.

import { openDialog } from "../components/dialogs.js";
import { button, byId, el, field, fill } from "../components/dom.js";
import { describeError } from "../components/notices.js";

const UNKNOWN_TOKEN = "The server does not accept this token.";

export function createAccess(client) {
  let access = { required: false, scope: null, agents: null };

  const canWrite = () => !access.required || access.scope === "write";

  function updatePage() {
    for (const control of document.querySelectorAll(".write")) control.hidden = !canWrite();
    const tokenButton = byId("token");
    tokenButton.hidden = !access.required;
    tokenButton.textContent = access.scope === "write" ? "Token: read and write" : "Token: read only";
    tokenButton.onclick = () => askForToken({ canCancel: true }).then(() => location.reload());
  }

  /** Open a dialog and resolve when a token is accepted. */
  function askForToken({ problem = null, canCancel = false } = {}) {
    const input = el("input", { type: "password", autocomplete: "off", required: true });
    const errorBox = el("div", { role: "alert" }, problem && el("p", { class: "notice bad" }, problem));
    const form = el("form", { class: "dialog-form" },
      el("p", {}, "This server requires a token. It is kept in this tab only."),
      field("Token", input), errorBox,
      el("div", { class: "row dialog-end" },
        canCancel && button("Forget token", () => { client.token = null; location.reload(); }, { class: "quiet" }),
        canCancel && button("Cancel", () => dialog.close()),
        el("button", { class: "main" }, "Use token")));
    const dialog = openDialog("Token required", form);
    if (!canCancel) dialog.addEventListener("cancel", (event) => event.preventDefault());
    return new Promise((accepted) => {
      form.addEventListener("submit", async (event) => {
        event.preventDefault();
        const before = client.token;
        client.token = input.value.trim();
        try {
          access = await client.get("access");
          if (!access.scope) throw new Error(UNKNOWN_TOKEN);
          dialog.close();
          accepted();
        } catch (error) {
          client.token = before;
          fill(errorBox, el("div", { class: "notice bad" }, describeError(error)));
          input.select();
        }
      });
    });
  }

  return {
    canWrite,
    /** Deleting a session deletes it for all its agents, so a token for some agents is not enough. */
    canDelete: () => canWrite() && access.agents === null,
    /** Find out what the user may do, and ask for a token if one is required. */
    async enter() {
      access = await client.get("access");
      if (access.required && !access.scope) await askForToken({ problem: client.token && UNKNOWN_TOKEN });
      updatePage();
    },
  };
}
