// Who may do what. Where the server wants a token the viewer asks for one, and keeps it for this tab
// only. With a token for reading there are no buttons that write.

import { button, byId, el, field, fill } from "../components/dom.js";
import { get, setToken, token } from "../api/client.js";
import { openDialog } from "../components/dialogs.js";
import { errorText } from "../components/notices.js";

let access = { required: false, scope: null, agents: null };

export const canWrite = () => !access.required || access.scope === "write";

/** A deletion takes the parts of all agents along, so that a token for some agents does not do. */
export const canDelete = () => canWrite() && access.agents === null;

/** Find out what one may do, and ask for a token until there is one that will do. */
export async function enter() {
  access = await get("access");
  if (access.required && !access.scope) await askForToken(token() ? "The server does not know this token." : null);
  arrange();
}

function arrange() {
  for (const control of document.querySelectorAll(".write")) control.hidden = !canWrite();
  const about = byId("token");
  about.hidden = !access.required;
  about.textContent = access.scope === "write" ? "Token: read and write" : "Token: read only";
  about.onclick = () => askForToken(null, { canCancel: true }).then(() => location.reload(), () => {});
}

/** A dialog that stays until a token is accepted. */
function askForToken(problem, { canCancel = false } = {}) {
  return new Promise((done, cancelled) => {
    const input = el("input", { type: "password", autocomplete: "off", required: true });
    const wrong = el("div", { role: "alert" });
    const form = el("form", { class: "asking" },
      el("p", {}, "This server gives its answers to those who have a token. It is kept in this tab only."),
      field("Token", input), wrong,
      el("div", { class: "row dialog-end" },
        canCancel && button("Forget the token", () => { setToken(null); location.reload(); }, { class: "quiet" }),
        canCancel && button("Cancel", () => { dialog.close(); cancelled(new Error("cancelled")); }),
        el("button", { class: "main" }, "Use it")));
    const dialog = openDialog("A token, please", form);
    if (!canCancel) dialog.addEventListener("cancel", (event) => event.preventDefault());
    if (problem) fill(wrong, el("p", { class: "notice bad" }, problem));
    form.addEventListener("submit", async (event) => {
      event.preventDefault();
      const before = token();
      setToken(input.value.trim());
      try {
        access = await get("access");
        if (!access.scope) throw new Error("The server does not know this token.");
        dialog.close();
        done();
      } catch (error) {
        setToken(before);
        fill(wrong, el("div", { class: "notice bad" }, errorText(error)));
        input.select();
      }
    });
  });
}
